# ruff: noqa: E501 - one row a concept, in six languages
"""Transitive verbs, and verbs of giving and telling.

``VERBS`` rows are ``id flags ; English ; French ; German ; Russian ; Arabic ; Chinese`` with the principal parts:
English ``base past participle`` (regular where left out), French ``infinitive present participle``, German the same
with ``·`` after a separable prefix, Russian ``perfective imperfective present [past m,f]``, Arabic
``past present [jussive]``. The flag ``once`` marks verbs that name a moment, ``bad`` those nobody enjoys, ``luck``
those nobody plans, ``moving`` those that do not happen at one place.
``GIVING`` and ``TELLING`` hold the past (participle) only.
"""

from __future__ import annotations

VERBS = """
buy - ; buy bought ; acheter achète acheté ; kaufen kauft gekauft ; купить покупать покупает ; اشترى يشتري يشتر ; 买
wash - ; wash ; laver lave lavé ; waschen wäscht gewaschen ; помыть мыть моет ; غسل يغسل ; 洗
peel - ; peel ; éplucher épluche épluché ; schälen schält geschält ; очистить очищать очищает ; قشر يقشر ; 削
cut - ; cut cut ; couper coupe coupé ; schneiden schneidet geschnitten ; порезать резать режет ; قطع يقطع ; 切
mix - ; mix ; mélanger mélange mélangé ; mischen mischt gemischt ; перемешать перемешивать перемешивает ; خلط يخلط ; 搅拌
cook_food - ; cook ; cuisiner cuisine cuisiné ; kochen kocht gekocht ; сварить варить варит ; طبخ يطبخ ; 煮
bake - ; bake ; cuire cuit cuit ; backen backt gebacken ; испечь печь печёт испёк,испекла ; خبز يخبز ; 烤
taste - ; taste ; goûter goûte goûté ; probieren probiert probiert ; попробовать пробовать пробует ; تذوق يتذوق ; 尝
serve - ; serve ; servir sert servi ; servieren serviert serviert ; подать подавать подаёт ; قدم يقدم ; 端上
eat - ; eat ate eaten ; manger mange mangé ; essen isst gegessen ; съесть есть ест съел,съела ; أكل يأكل ; 吃
drink - ; drink drank drunk ; boire boit bu ; trinken trinkt getrunken ; выпить пить пьёт ; شرب يشرب ; 喝
break once,bad ; break broke broken ; casser casse cassé ; zerbrechen zerbricht zerbrochen ; разбить разбивать разбивает ; كسر يكسر ; 打碎
clean - ; clean ; nettoyer nettoie nettoyé ; putzen putzt geputzt ; протереть протирать протирает протёр,протёрла ; نظف ينظف ; 擦
weigh - ; weigh ; peser pèse pesé ; wiegen wiegt gewogen ; взвесить взвешивать взвешивает ; وزن يزن ; 称
sell - ; sell sold ; vendre vend vendu ; verkaufen verkauft verkauft ; продать продавать продаёт ; باع يبيع يبع ; 卖
bring moving ; bring brought ; apporter apporte apporté ; bringen bringt gebracht ; принести приносить приносит принёс,принесла ; أحضر يحضر ; 带来
carry - ; carry ; porter porte porté ; tragen trägt getragen ; перенести переносить переносит перенёс,перенесла ; حمل يحمل ; 搬
open - ; open ; ouvrir ouvre ouvert ; öffnen öffnet geöffnet ; открыть открывать открывает ; فتح يفتح ; 打开
close - ; close~shut shut ; fermer ferme fermé ; schließen schließt geschlossen ; закрыть закрывать закрывает ; أغلق يغلق ; 关上
find once ; find found ; trouver trouve trouvé ; finden findet gefunden ; найти находить находит нашёл,нашла ; وجد يجد ; 找到
lose once,bad ; lose lost ; perdre perd perdu ; verlieren verliert verloren ; потерять терять теряет ; فقد يفقد~أضاع يضيع يضع ; 弄丢
notice once,luck ; notice ; remarquer remarque remarqué ; bemerken bemerkt bemerkt ; заметить замечать замечает ; لاحظ يلاحظ ; 注意到
choose - ; choose chose chosen ; choisir choisit choisi ; aus·wählen wählt ausgewählt ; выбрать выбирать выбирает ; اختار يختار يختر ; 挑选
leave once ; leave left ; laisser laisse laissé ; zurück·lassen lässt zurückgelassen ; оставить оставлять оставляет ; ترك يترك ; 留下
hide - ; hide hid hidden ; cacher cache caché ; verstecken versteckt versteckt ; спрятать прятать прячет ; أخفى يخفي يخف ; 藏
photograph - ; photograph ; photographier photographie photographié ; fotografieren fotografiert fotografiert ; сфотографировать фотографировать фотографирует ; صور يصور ; 拍摄
describe - ; describe ; décrire décrit décrit ; beschreiben beschreibt beschrieben ; описать описывать описывает ; وصف يصف ; 描述
repair - ; repair~fix ; réparer répare réparé ; reparieren repariert repariert ; починить чинить чинит ; أصلح يصلح ; 修理
check - ; check ; vérifier vérifie vérifié ; prüfen prüft geprüft ; проверить проверять проверяет ; فحص يفحص ; 检查
change - ; replace ; remplacer remplace remplacé ; wechseln wechselt gewechselt ; поменять менять меняет ; غير يغير~بدل يبدل ; 更换
paint - ; paint ; peindre peint peint ; streichen streicht gestrichen ; покрасить красить красит ; دهن يدهن ; 漆
draw - ; draw drew drawn ; dessiner dessine dessiné ; zeichnen zeichnet gezeichnet ; нарисовать рисовать рисует ; رسم يرسم ; 画
read - ; read read ; lire lit lu ; lesen liest gelesen ; прочитать читать читает ; قرأ يقرأ ; 读
write - ; write wrote written ; écrire écrit écrit ; schreiben schreibt geschrieben ; написать писать пишет ; كتب يكتب ; 写
sign - ; sign ; signer signe signé ; unterschreiben unterschreibt unterschrieben ; подписать подписывать подписывает ; وقع يوقع ; 签署
send moving ; send sent ; envoyer envoie envoyé ; schicken schickt geschickt ; отправить отправлять отправляет ; أرسل يرسل ; 寄出
explain - ; explain ; expliquer explique expliqué ; erklären erklärt erklärt ; объяснить объяснять объясняет ; شرح يشرح ; 讲解
correct - ; correct ; corriger corrige corrigé ; korrigieren korrigiert korrigiert ; исправить исправлять исправляет ; صحح يصحح ; 修改
learn - ; learn ; apprendre apprend appris ; lernen lernt gelernt ; выучить учить учит ; حفظ يحفظ ; 学
borrow - ; borrow ; emprunter emprunte emprunté ; aus·leihen leiht ausgeliehen ; одолжить одалживать одалживает ; استعار يستعير يستعر ; 借
return - ; return ; rendre rend rendu ; zurück·geben gibt zurückgegeben ; вернуть возвращать возвращает ; أعاد يعيد يعد ; 归还
pack - ; pack ; emballer emballe emballé ; ein·packen packt eingepackt ; упаковать упаковывать упаковывает ; غلف يغلف ; 包装
copy - ; copy ; copier copie copié ; kopieren kopiert kopiert ; скопировать копировать копирует ; نسخ ينسخ ; 复印
examine - ; examine ; examiner examine examiné ; untersuchen untersucht untersucht ; осмотреть осматривать осматривает ; عاين يعاين ; 查看
prepare - ; prepare ; préparer prépare préparé ; vor·bereiten bereitet vorbereitet ; подготовить готовить готовит ; جهز يجهز ; 准备
measure - ; measure ; mesurer mesure mesuré ; messen misst gemessen ; измерить измерять измеряет ; قاس يقيس يقس ; 测量
throw - ; throw threw thrown ; lancer lance lancé ; werfen wirft geworfen ; бросить бросать бросает ; رمى يرمي يرم ; 扔
stop - ; stop ; arrêter arrête arrêté ; stoppen stoppt gestoppt ; остановить останавливать останавливает ; أوقف يوقف ; 停下
win once ; win won ; gagner gagne gagné ; gewinnen gewinnt gewonnen ; выиграть выигрывать выигрывает ; ربح يربح ; 赢得
watch - ; watch ; regarder regarde regardé ; an·schauen schaut angeschaut ; посмотреть смотреть смотрит ; شاهد يشاهد ; 观看
fill - ; fill ; remplir remplit rempli ; füllen füllt gefüllt ; наполнить наполнять наполняет ; ملأ يملأ ; 装满
fill_in - ; fill_in filled_in ; compléter complète complété ; aus·füllen füllt ausgefüllt ; заполнить заполнять заполняет ; عبأ يعبئ ; 填写
trim - ; trim trimmed ; tailler taille taillé ; stutzen stutzt gestutzt ; подстричь подстригать подстригает подстриг,подстригла ; قص يقص ; 修剪
block - ; block ; bloquer bloque bloqué ; ab·wehren wehrt abgewehrt ; отбить отбивать отбивает ; صد يصد ; 挡住
feed - ; feed fed ; nourrir nourrit nourri ; füttern füttert gefüttert ; накормить кормить кормит ; أطعم يطعم ; 喂
plant - ; plant ; planter plante planté ; pflanzen pflanzt gepflanzt ; посадить сажать сажает ; زرع يزرع ; 种
water_plant - ; water ; arroser arrose arrosé ; gießen gießt gegossen ; полить поливать поливает ; سقى يسقي يسق ; 浇灌
pick - ; pick ; cueillir cueille cueilli ; pflücken pflückt gepflückt ; сорвать срывать срывает ; قطف يقطف ; 采摘
catch once ; catch caught ; pêcher pêche pêché ; fangen fängt gefangen ; поймать ловить ловит ; اصطاد يصطاد يصطد ; 捕到
raise - ; raise ; hisser hisse hissé ; hissen hisst gehisst ; поднять поднимать поднимает ; رفع يرفع ; 升起
steer - ; drive drove driven ; conduire conduit conduit ; steuern steuert gesteuert ; повести вести ведёт повёл,повела ; قاد يقود يقد ; 驾驶
tie - ; tie ; attacher attache attaché ; fest·binden bindet festgebunden ; привязать привязывать привязывает ; ربط يربط ; 拴好
tune - ; tune ; accorder accorde accordé ; stimmen stimmt gestimmt ; настроить настраивать настраивает ; ضبط يضبط ; 调准
sing - ; sing sang sung ; chanter chante chanté ; singen singt gesungen ; спеть петь поёт ; غنى يغني يغن ; 唱
record - ; record ; enregistrer enregistre enregistré ; auf·nehmen nimmt aufgenommen ; записать записывать записывает ; سجل يسجل ; 录制
compose - ; compose ; composer compose composé ; komponieren komponiert komponiert ; сочинить сочинять сочиняет ; ألف يؤلف ; 创作
hear once,luck ; hear heard ; entendre entend entendu ; hören hört gehört ; услышать слышать слышит ; سمع يسمع ; 听到
hang - ; hang hung ; accrocher accroche accroché ; auf·hängen hängt aufgehängt ; повесить вешать вешает ; علق يعلق ; 挂上
push - ; push ; pousser pousse poussé ; schieben schiebt geschoben ; толкнуть толкать толкает ; دفع يدفع ; 推
grease - ; grease ; graisser graisse graissé ; schmieren schmiert geschmiert ; смазать смазывать смазывает ; شحم يشحم ; 润滑
test - ; test ; tester teste testé ; testen testet getestet ; испытать испытывать испытывает ; اختبر يختبر~جرب يجرب ; 测试
remove - ; remove ; enlever enlève enlevé~retirer retire retiré ; entfernen entfernt entfernt ; снять снимать снимает ; نزع ينزع ; 拆下
order - ; order ; commander commande commandé ; bestellen bestellt bestellt ; заказать заказывать заказывает ; طلب يطلب ; 订购
pay - ; pay paid ; payer paie payé ; bezahlen bezahlt bezahlt ; оплатить оплачивать оплачивает ; سدد يسدد ; 支付
approve - ; approve ; approuver approuve approuvé ; genehmigen genehmigt genehmigt ; одобрить одобрять одобряет ; اعتمد يعتمد ; 批准
reject - ; reject ; rejeter rejette rejeté ; ab·lehnen lehnt abgelehnt ; отклонить отклонять отклоняет ; رفض يرفض ; 否决
present - ; present ; présenter présente présenté ; vor·stellen stellt vorgestellt ; представить представлять представляет ; عرض يعرض ; 介绍
discuss - ; discuss ; évoquer évoque évoqué ; besprechen bespricht besprochen~diskutieren diskutiert diskutiert ; обсудить обсуждать обсуждает ; ناقش يناقش ; 讨论
publish - ; publish ; publier publie publié ; veröffentlichen veröffentlicht veröffentlicht ; опубликовать публиковать публикует ; نشر ينشر ; 发布
build - ; build built ; construire construit construit ; bauen baut gebaut ; построить строить строит ; بنى يبني يبن ; 建造
deliver moving ; deliver ; livrer livre livré ; liefern liefert geliefert ; доставить доставлять доставляет ; سلم يسلم ; 送来
climb - ; climb ; gravir gravit gravi ; besteigen besteigt bestiegen ; покорить покорять покоряет ; تسلق يتسلق ; 攀登
cross - ; cross ; traverser traverse traversé ; überqueren überquert überquert ; пересечь пересекать пересекает пересёк,пересекла ; عبر يعبر ; 穿过
light - ; light lit ; allumer allume allumé ; an·zünden zündet angezündet ; зажечь зажигать зажигает зажёг,зажгла ; أشعل يشعل ; 点燃
set_up - ; put_up put_up ; installer installe installé ; auf·bauen baut aufgebaut ; установить устанавливать устанавливает ; نصب ينصب ; 架起
mark - ; mark ; marquer marque marqué ; markieren markiert markiert ; отметить отмечать отмечает ; حدد يحدد ; 标出
dry - ; dry ; sécher sèche séché ; trocknen trocknet getrocknet ; высушить сушить сушит ; جفف يجفف ; 晾干
cover - ; cover ; couvrir couvre couvert ; ab·decken deckt abgedeckt ; накрыть накрывать накрывает ; غطى يغطي يغط ; 盖好
"""

GIVING = """
give ; gave~handed ; donné ; gegeben ; дал,дала ; سلم ; 交
lend ; lent ; prêté ; geliehen ; одолжил,одолжила ; أعار ; 借
sell_to ; sold ; vendu ; verkauft ; продал,продала ; باع ; 卖
bring_to ; brought ; apporté ; gebracht ; принёс,принесла ; أحضر ; 拿
send_to ; sent ; envoyé ; geschickt ; отправил,отправила ; أرسل ; 寄
"""

TELLING = """
read_to ; read ; lu ; vorgelesen ; прочитал,прочитала ; قرأ ; 读
explain_to ; explained ; expliqué ; erklärt ; объяснил,объяснила ; شرح ; 解释
describe_to ; described ; décrit ; beschrieben ; описал,описала ; وصف ; 描述
present_to ; presented ; présenté ; vorgestellt ; представил,представила ; قدم ; 介绍
"""
