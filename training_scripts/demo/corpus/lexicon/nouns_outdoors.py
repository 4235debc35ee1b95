# ruff: noqa: E501 - one row a concept, in six languages
"""Things of the outdoor topics: football, train, farm, sea, market, garage, garden, mountain, building site.

The row format is that of ``nouns_indoors``.
"""

from __future__ import annotations

ROWS = """
ball+ thing ; ball ; m ballon ; m Ball Bälle ; m мяч мячей ins=мячом ; f كرة كرات ; 个 球
match- game ; match ; m match matchs ; n Spiel Spiele ; m матч матчей ; f مباراة مباريات ; 场 比赛
trophy+ art ; trophy ; f coupe ; m Pokal Pokale ; m кубок кубков stem=кубк ; f كأس كؤوس ; 座 奖杯
jersey+ cloth ; jersey ; m maillot ; n Trikot Trikots ; f футболка футболок ; m قميص قمصان ; 件 球衣
whistle+ tool ; whistle ; m sifflet ; f Pfeife Pfeifen ; m свисток свистков stem=свистк ; f صافرة صافرات ; 个 哨子
flag+ cloth ; flag ; m drapeau drapeaux ; f Fahne Fahnen~f Flagge Flaggen ; m флаг флагов ; m علم أعلام~f راية رايات ; 面 旗子
shoe+ cloth ; shoe ; f chaussure ; m Schuh Schuhe ; m ботинок ботинок stem=ботинк ; m حذاء أحذية ; 只 鞋
stopwatch+ tool ; stopwatch ; m chronomètre ; f Stoppuhr Stoppuhren ; m секундомер секундомеров ; f ساعة+توقيت ساعات+توقيت ; 块 秒表
scarf+ cloth ; scarf scarves ; f écharpe ; m Schal Schals ; m шарф шарфов ; m وشاح أوشحة ; 条 围巾
water drink ; water - ; f eau - ; n Wasser - ; f вода - ; m ماء - ; 些 水
list+ paper ; list ; f liste ; f Liste Listen ; m список списков stem=списк ; f قائمة قوائم ; 份 名单
ticket+ card ; ticket ; m billet ; f Karte Karten ; m билет билетов ; f تذكرة تذاكر ; 张 票
suitcase+ box ; suitcase ; f valise ; m Koffer Koffer ; m чемодан чемоданов ; f حقيبة+سفر حقائب+سفر ; 个 行李箱
timetable+ paper ; timetable ; m horaire ; m Fahrplan Fahrpläne ; n расписание расписаний ; m جدول جداول ; 张 时刻表
newspaper+ book ; newspaper ; m journal journaux ; f Zeitung Zeitungen ; f газета газет ; f جريدة جرائد~f صحيفة صحف ; 份 报纸
passport+ card ; passport ; m passeport ; m Pass Pässe ; m паспорт паспортов ; m جواز+سفر جوازات+سفر ; 本 护照
umbrella+ cloth ; umbrella ; m parapluie ; m Regenschirm Regenschirme ; m зонт зонтов ; f مظلة مظلات ; 把 雨伞
sandwich+ food ; sandwich ; m sandwich sandwichs ; n Sandwich Sandwiches ; m бутерброд бутербродов ; f شطيرة شطائر ; 个 三明治
window glass ; window ; f fenêtre ; n Fenster Fenster ; n окно окон ; f نافذة نوافذ~m شباك شبابيك ; 扇 窗户
door build ; door ; f porte ; f Tür Türen ; f дверь дверей ; m باب أبواب ; 扇 门
carriage craft ; carriage ; m wagon ; m Waggon Waggons ; m вагон вагонов ; f عربة عربات ; 节 车厢
locomotive craft ; locomotive ; f locomotive ; f Lokomotive Lokomotiven ; m локомотив локомотивов ; f قاطرة قاطرات ; 台 火车头
coat+ cloth ; coat ; m manteau manteaux ; m Mantel Mäntel ; m плащ плащей ins=плащом ; m معطف معاطف ; 件 大衣
horse animal ; horse ; m cheval chevaux ; n Pferd Pferde ; fa лошадь лошадей ; m حصان أحصنة ; 匹 马
cow animal ; cow ; f vache ; f Kuh Kühe ; fa корова коров ; f بقرة بقرات ; 头 奶牛
sheep animal ; sheep sheep ; m mouton ; n Schaf Schafe ; fa овца овец ins=овцой ; m خروف خراف ; 只 绵羊
hen animal ; hen ; f poule ; f Henne Hennen ; fa курица кур ins=курицей ; f دجاجة دجاجات ; 只 母鸡
dog animal ; dog ; m chien ; m Hund Hunde ; fa собака собак ; m كلب كلاب ; 只 狗
cat animal ; cat ; m chat ; f Katze Katzen ; fa кошка кошек ; f قطة قطط ; 只 猫
bird animal ; bird ; m oiseau oiseaux ; m Vogel Vögel ; fa птица птиц ins=птицей ; m طائر طيور ; 只 鸟
crab animal ; crab ; m crabe ; m Krebs Krebse ; ma краб крабов ; m سلطعون سلطعونات ; 只 螃蟹
tractor vehicle ; tractor ; m tracteur ; m Traktor Traktoren ; m трактор тракторов ; m جرار جرارات ; 台 拖拉机
fence build ; fence ; f clôture ; m Zaun Zäune ; m забор заборов ; m سياج أسيجة ; 道 围栏
gate build ; gate ; m portail ; n Tor Tore ; f калитка калиток ; f بوابة بوابات ; 道 大门
hay raw ; hay - ; m foin - ; n Heu - ; n сено - ; m قش - ; 些 干草
wheat raw ; wheat - ; m blé - ; m Weizen - ; f пшеница - ins=пшеницей ; m قمح - ; 些 小麦
bucket+ box ; bucket ; m seau seaux ; m Eimer Eimer ; n ведро вёдер ; m دلو دلاء ; 个 水桶
milk+ drink ; milk - ; m lait - ; f Milch - ; n молоко - ; m حليب - ; 些 牛奶
shovel+ tool ; shovel ; f pelle ; f Schaufel Schaufeln ; f лопата лопат ; f مجرفة مجارف ; 把 铲子
boat vehicle ; boat ; m bateau bateaux ; n Boot Boote ; f лодка лодок ; m قارب قوارب ; 条 小船
ship craft ; ship ; m navire ; n Schiff Schiffe ; m корабль кораблей ins=кораблём ; f سفينة سفن ; 艘 大船
sail cloth ; sail ; f voile ; n Segel Segel ; m парус парусов ; m شراع أشرعة ; 面 船帆
net+ cloth ; net ; m filet ; n Netz Netze ; f сеть сетей ; f شبكة شبكات ; 张 渔网
fish+ veg ; fish fish ; m poisson ; m Fisch Fische ; fa рыба рыб ; f سمكة سمكات ; 条 鱼
lantern+ device ; lantern ; f lanterne ; f Laterne Laternen ; m фонарь фонарей ins=фонарём ; m فانوس فوانيس ; 盏 灯笼
rope+ thing ; rope ; f corde ; n Seil Seile ; f верёвка верёвок tool=с_помощью_верёвки~m канат канатов tool=с_помощью_каната ; m حبل حبال ; 根 绳子
compass+ tool ; compass ; f boussole ; m Kompass Kompasse ; m компас компасов tool=с_помощью_компаса ; f بوصلة بوصلات ; 个 指南针
map+ picture ; map ; f carte ; f Landkarte Landkarten ; f карта карт ; f خريطة خرائط ; 张 地图
lighthouse landmark ; lighthouse ; m phare ; m Leuchtturm Leuchttürme ; m маяк маяков ; f منارة منارات ; 座 灯塔
telescope+ device ; telescope ; m télescope ; n Fernrohr Fernrohre ; m телескоп телескопов ; m تلسكوب تلسكوبات ; 架 望远镜
apple+ fruit ; apple ; f pomme ; m Apfel Äpfel ; n яблоко яблок ; f تفاحة تفاحات ; 个 苹果
orange+ fruit ; orange ; f orange ; f Orange Orangen~f Apfelsine Apfelsinen ; m апельсин апельсинов ; f برتقالة برتقالات ; 个 橙子
pear+ fruit ; pear ; f poire ; f Birne Birnen ; f груша груш ; f إجاصة إجاصات ; 个 梨
melon+ fruit ; melon ; m melon ; f Melone Melonen ; f дыня дынь ; f شمامة شمامات ; 个 甜瓜
pumpkin+ veg ; pumpkin ; f citrouille ; m Kürbis Kürbisse ; f тыква тыкв ; f يقطينة يقطينات ; 个 南瓜
cheese+ food ; cheese - ; m fromage - ; m Käse - ; m сыр - ; f جبنة - ; 些 奶酪
honey+ food ; honey - ; m miel - ; m Honig - ; m мёд - ; m عسل - ; 些 蜂蜜
bouquet+ plant ; bouquet ; m bouquet ; m Blumenstrauß Blumensträuße ; m букет букетов ; f باقة باقات ; 束 花束
basket+ box ; basket ; m panier ; m Korb Körbe ; f корзина корзин ; f سلة سلال ; 个 篮子
carpet+ cloth ; carpet ; m tapis tapis ; m Teppich Teppiche ; m ковёр ковров stem=ковр ; f سجادة سجادات ; 块 地毯
coin+ art ; coin ; f pièce ; f Münze Münzen ; f монета монет ; f عملة عملات ; 枚 硬币
hat+ cloth ; hat ; m chapeau chapeaux ; m Hut Hüte ; f шляпа шляп ; f قبعة قبعات ; 顶 帽子
car vehicle ; car ; f voiture ; n Auto Autos~m Wagen Wagen ; f машина машин~m автомобиль автомобилей ; f سيارة سيارات ; 辆 汽车
truck vehicle ; truck~lorry lorries ; m camion ; m Lastwagen Lastwagen ; m грузовик грузовиков ; f شاحنة شاحنات ; 辆 卡车
motorcycle vehicle ; motorcycle ; f moto ; n Motorrad Motorräder ; m мотоцикл мотоциклов ; f دراجة&نارية دراجات&نارية ; 辆 摩托车
bicycle+ vehicle ; bicycle~bike ; m vélo~f bicyclette ; n Fahrrad Fahrräder ; m велосипед велосипедов ; f دراجة دراجات ; 辆 自行车
engine machine ; engine ; m moteur ; m Motor Motoren ; m двигатель двигателей~m мотор моторов ; m محرك محركات ; 台 发动机
tyre+ part ; tyre ; m pneu pneus ; m Reifen Reifen ; f шина шин ; m إطار إطارات ; 个 轮胎
brake part ; brake ; m frein ; f Bremse Bremsen ; m тормоз тормозов ; m مكبح مكابح ; 个 刹车
battery+ part ; battery ; f batterie ; f Batterie Batterien ; m аккумулятор аккумуляторов ; f بطارية بطاريات ; 块 电池
mirror+ thing ; mirror ; m miroir ; m Spiegel Spiegel ; n зеркало зеркал ; f مرآة مرايا ; 面 镜子
wheel+ part ; wheel ; f roue ; n Rad Räder ; n колесо колёс ; f عجلة عجلات ; 个 车轮
bill+ paper ; bill~invoice ; f facture ; f Rechnung Rechnungen ; m счёт счетов ; f فاتورة فواتير ; 张 账单
hammer+ tool ; hammer ; m marteau marteaux ; m Hammer Hämmer ; m молоток молотков stem=молотк ; f مطرقة مطارق ; 把 锤子
screwdriver+ tool ; screwdriver ; m tournevis tournevis ; m Schraubenzieher Schraubenzieher ; f отвёртка отвёрток ; m مفك مفكات ; 把 螺丝刀
pump+ machine ; pump ; f pompe ; f Pumpe Pumpen ; m насос насосов ; f مضخة مضخات ; 台 水泵
rose plant ; rose ; f rose ; f Rose Rosen ; f роза роз ; f وردة ورود ; 朵 玫瑰
lily plant ; lily ; m lys lys ; f Lilie Lilien ; f лилия лилий ; f زنبقة زنابق ; 朵 百合
flower plant ; flower ; f fleur ; f Blume Blumen ; m цветок цветов stem=цветк ; f زهرة زهور ; 朵 花
tree plant ; tree ; m arbre ; m Baum Bäume ; n дерево деревьев ; f شجرة أشجار ; 棵 树
bush plant ; bush ; m buisson ; m Busch Büsche~m Strauch Sträucher ; m куст кустов ; f شجيرة شجيرات ; 丛 灌木
lawn grass ; lawn ; f pelouse ; m Rasen Rasen ; m газон газонов ; m عشب - ; 片 草坪
bench thing ; bench ; m banc ; f Bank Bänke ; f скамейка скамеек ; m مقعد مقاعد ; 张 长椅
can+ box ; watering_can ; m arrosoir ; f Gießkanne Gießkannen ; f лейка леек tool=из_лейки ; f مرشة مرشات ; 个 洒水壶
path way ; path ; m sentier ; m Weg Wege ; f тропинка тропинок~f тропа троп ; m درب دروب ; 条 小路
fountain build ; fountain ; f fontaine ; m Brunnen Brunnen ; m фонтан фонтанов ; f نافورة نوافير ; 座 喷泉
tent+ cloth ; tent ; f tente ; n Zelt Zelte ; f палатка палаток ; f خيمة خيام ; 顶 帐篷
backpack+ box ; backpack ; m sac_à_dos sacs_à_dos ; m Rucksack Rucksäcke ; m рюкзак рюкзаков ; f حقيبة+ظهر حقائب+ظهر ; 个 背包
mountain rock ; mountain ; f montagne ; m Berg Berge ; f гора гор ; m جبل جبال ; 座 山峰
rock rock ; rock ; m rocher ; m Felsen Felsen ; f скала скал ; f صخرة صخور ; 块 岩石
cave hollow ; cave ; f grotte ; f Höhle Höhlen ; f пещера пещер ; m كهف كهوف ; 个 山洞
river way ; river ; f rivière ; m Fluss Flüsse ; f река рек ; m نهر أنهار ; 条 河
bridge landmark ; bridge ; m pont ; f Brücke Brücken ; m мост мостов ; m جسر جسور ; 座 桥
fire blaze ; fire ; m feu feux ; n Feuer Feuer ; m костёр костров stem=костр ; f نار نيران ; 堆 篝火
bottle+ box ; bottle ; f bouteille ; f Flasche Flaschen ; f бутылка бутылок ; f زجاجة زجاجات ; 个 瓶子
torch+ device ; torch ; f lampe_de_poche lampes_de_poche ; f Taschenlampe Taschenlampen ; m фонарик фонариков tool=с_помощью_фонарика ; m كشاف كشافات ; 个 手电筒
wall build ; wall ; m mur ; f Wand Wände~f Mauer Mauern ; f стена стен ; m جدار جدران~m حائط حيطان ; 面 墙
house landmark ; house ; f maison ; n Haus Häuser ; m дом домов ; m بيت بيوت~m منزل منازل ; 座 房子
roof build ; roof ; m toit ; n Dach Dächer ; f крыша крыш ; m سقف أسقف ; 个 屋顶
floor build ; floor ; m plancher ; m Boden Böden ; m пол полов ; f أرضية أرضيات ; 块 地板
brick+ part ; brick ; f brique ; m Ziegel Ziegel~m Ziegelstein Ziegelsteine ; m кирпич кирпичей ins=кирпичом ; f طوبة طوبات ; 块 砖
ladder+ thing ; ladder ; f échelle ; f Leiter Leitern ; f лестница лестниц ins=лестницей ; m سلم سلالم ; 把 梯子
cable+ part ; cable ; m câble ; n Kabel Kabel ; m кабель кабелей ; m كابل كابلات~m سلك أسلاك ; 根 电缆
crane machine ; crane ; f grue ; m Kran Kräne ; m кран кранов ; f رافعة رافعات ; 台 起重机
concrete raw ; concrete - ; m béton - ; m Beton - ; m бетон - ; f خرسانة - ; 些 混凝土
drill+ tool ; drill ; f perceuse ; f Bohrmaschine Bohrmaschinen ; f дрель дрелей ; m مثقاب مثاقب ; 把 电钻
beam part ; beam ; f poutre ; m Balken Balken ; f балка балок ; f عارضة عوارض ; 根 横梁
helmet+ tool ; helmet ; m casque ; m Helm Helme ; m шлем шлемов ; f خوذة خوذات ; 顶 安全帽
"""
