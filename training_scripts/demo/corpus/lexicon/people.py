# ruff: noqa: E501 - one row a concept, in six languages
"""People: first names and roles, each of one fixed gender, so that ``the nurse`` is one meaning in all languages.

Rows are ``id gender ; English ; French ; German ; Russian ; Arabic ; Chinese``; German ``nominative>oblique`` for
the weak nouns, an Arabic accusative where spelling shows it, and the Russian marks of ``nouns_indoors``.
"""

from __future__ import annotations

NAMES = """
Anna f ; Anna ; Anna ; Anna ; Анна ; آنا ; 安娜
Paul m ; Paul ; Paul ; Paul ; Павел stem=Павл ; بول ; 保罗
Maria f ; Maria ; Maria ; Maria ; Мария ; ماريا ; 玛丽亚
Ivan m ; Ivan ; Ivan ; Iwan ; Иван ; إيفان ; 伊万
Omar m ; Omar ; Omar ; Omar ; Омар ; عمر ; 奥马尔
Leila f ; Leila ; Leïla ; Leila ; Лейла ; ليلى ; 莱拉
Sara f ; Sara ; Sara ; Sara ; Сара ; سارة ; 萨拉
Peter m ; Peter ; Pierre ; Peter ; Пётр stem=Петр ; بيتر ; 彼得
Nina f ; Nina ; Nina ; Nina ; Нина ; نينا ; 尼娜
Karim m ; Karim ; Karim ; Karim ; Карим ; كريم كريما ; 卡里姆
Julia f ; Julia ; Julia ; Julia ; Юлия ; جوليا ; 朱莉娅
Daniel m ; Daniel ; Daniel ; Daniel ; Даниил ; دانيال ; 丹尼尔
Clara f ; Clara ; Clara ; Klara ; Клара ; كلارا ; 克拉拉
Victor m ; Victor ; Victor ; Viktor ; Виктор ; فيكتور ; 维克托
Emma f ; Emma ; Emma ; Emma ; Эмма ; إيما ; 艾玛
Thomas m ; Thomas ; Thomas ; Thomas ; Томас ; توماس ; 托马斯
Nadia f ; Nadia ; Nadia ; Nadja ; Надя ; نادية ; 纳迪娅
Martin m ; Martin ; Martin ; Martin ; Мартин ; مارتن ; 马丁
Lina f ; Lina ; Lina ; Lina ; Лина ; لينا ; 莉娜
Adam m ; Adam ; Adam ; Adam ; Адам ; آدم ; 亚当
"""

ROLES = """
cook m ; cook~chef ; cuisinier ; Koch ; повар ; طباخ ; 厨师
waitress f ; waitress ; serveuse ; Kellnerin ; официантка ; نادلة ; 女服务员
grandmother f ; grandmother ; grand-mère ; Großmutter~Oma ; бабушка ; جدة ; 奶奶
baker m ; baker ; boulanger ; Bäcker ; пекарь ; خباز ; 面包师
doctor m ; doctor ; médecin ; Arzt ; врач ins=врачом~доктор ; طبيب ; 医生~大夫
nurse f ; nurse ; infirmière ; Krankenschwester ; медсестра ; ممرضة ; 护士
pharmacist m ; pharmacist ; pharmacien ; Apotheker ; аптекарь ; صيدلي ; 药剂师
patient m ; patient ; patient ; Patient>Patienten ; пациент ; مريض ; 病人
teacher f ; teacher ; enseignante ; Lehrerin ; учительница ins=учительницей ; معلمة ; 老师
pupil m ; pupil ; élève ; Schüler ; ученик ; تلميذ ; 学生
headmaster m ; headmaster ; directeur ; Schulleiter ; директор ; مدير ; 校长
student f ; student ; étudiante ; Studentin ; студентка ; طالبة ; 女大学生
goalkeeper m ; goalkeeper ; gardien_de_but ; Torwart ; вратарь ins=вратарём ; حارس+مرمى ; 守门员
coach m ; coach ; entraîneur ; Trainer ; тренер ; مدرب ; 教练
referee m ; referee ; arbitre ; Schiedsrichter ; судья ins=судьёй ; حكم ; 裁判
fan f ; fan ; supportrice ; Anhängerin ; болельщица ins=болельщицей ; مشجعة ; 女球迷
inspector m ; ticket_inspector ; contrôleur ; Schaffner ; контролёр ; مفتش ; 检票员
passenger f ; passenger ; passagère ; Passagierin ; пассажирка ; مسافرة ; 女乘客
engine_driver m ; train_driver ; conducteur_de_train ; Lokführer ; машинист ; سائق+قطار ; 火车司机
tourist f ; tourist ; touriste ; Touristin ; туристка ; سائحة ; 女游客
farmer m ; farmer ; fermier~agriculteur ; Bauer>Bauern~Landwirt ; фермер ; مزارع~فلاح ; 农夫
vet m ; vet ; vétérinaire ; Tierarzt ; ветеринар ; طبيب&بيطري ; 兽医
shepherd m ; shepherd ; berger ; Hirte>Hirten~Schäfer ; пастух ; راعي+أغنام ; 牧羊人
neighbour f ; neighbour ; voisine ; Nachbarin ; соседка ; جارة ; 女邻居
captain m ; captain ; capitaine ; Kapitän ; капитан ; قبطان ; 船长
fisherman m ; fisherman ; pêcheur ; Fischer ; рыбак ; صياد ; 渔夫
sailor m ; sailor ; marin~matelot ; Matrose>Matrosen~Seemann ; матрос~моряк ; بحار ; 水手
diver m ; diver ; plongeur ; Taucher ; водолаз ; غواص ; 潜水员
saleswoman f ; saleswoman ; vendeuse ; Verkäuferin ; продавщица ins=продавщицей ; بائعة ; 女售货员
customer m ; customer ; client ; Kunde>Kunden ; покупатель ; زبون ; 顾客
butcher m ; butcher ; boucher ; Metzger~Fleischer ; мясник ; جزار ; 肉贩
florist f ; florist ; fleuriste ; Floristin ; цветочница ins=цветочницей ; بائعة+زهور ; 卖花女
librarian m ; librarian ; bibliothécaire ; Bibliothekar ; библиотекарь ; أمين+مكتبة ; 图书管理员
writer f ; writer~author ; écrivaine~autrice ; Schriftstellerin~Autorin ; писательница ins=писательницей ; كاتبة ; 女作家
researcher m ; researcher ; chercheur ; Forscher ; исследователь ; باحث ; 研究员
reader f ; reader ; lectrice ; Leserin ; читательница ins=читательницей ; قارئة ; 女读者
violinist f ; violinist ; violoniste ; Geigerin ; скрипачка ; عازفة+كمان ; 女小提琴手
pianist m ; pianist ; pianiste ; Pianist>Pianisten ; пианист ; عازف+بيانو ; 钢琴家
singer f ; singer ; chanteuse ; Sängerin ; певица ins=певицей ; مغنية ; 女歌手
conductor m ; conductor ; chef_d'orchestre ; Dirigent>Dirigenten ; дирижёр ; قائد+أوركسترا ; 指挥家
mechanic m ; mechanic ; mécanicien ; Mechaniker ; механик ; ميكانيكي ; 修车工
apprentice m ; apprentice ; apprenti ; Lehrling ; стажёр ; متدرب ; 学徒
taxi_driver m ; taxi_driver ; chauffeur_de_taxi ; Taxifahrer ; таксист ; سائق+أجرة ; 出租车司机
owner f ; owner ; propriétaire ; Besitzerin ; владелица ins=владелицей ; مالكة ; 女主人
gardener m ; gardener ; jardinier ; Gärtner ; садовник ; بستاني ; 园丁
grandfather m ; grandfather ; grand-père ; Großvater~Opa ; дедушка ; جد ; 爷爷
aunt f ; aunt ; tante ; Tante ; тётя ; خالة ; 阿姨
boy m ; boy ; garçon ; Junge>Jungen ; мальчик ; ولد~صبي ; 男孩
mayor m ; mayor ; maire ; Bürgermeister ; мэр ; عمدة ; 市长
secretary f ; secretary ; secrétaire ; Sekretärin ; секретарша ; سكرتيرة ; 女秘书
accountant m ; accountant ; comptable ; Buchhalter ; бухгалтер ; محاسب ; 会计
journalist f ; journalist~reporter ; journaliste ; Journalistin~Reporterin ; журналистка ; صحفية ; 女记者
guide m ; guide ; guide ; Bergführer ; проводник ; مرشد ; 向导
climber f ; climber ; alpiniste ; Bergsteigerin ; альпинистка ; متسلقة ; 女登山者
photographer m ; photographer ; photographe ; Fotograf>Fotografen ; фотограф ; مصور ; 摄影师
hiker m ; hiker ; randonneur ; Wanderer ; путник ; متنزه ; 徒步者
guard m ; guard ; surveillant ; Wächter ; охранник ; حارس ; 保安
painter m ; painter ; peintre ; Maler ; художник ; رسام ; 画家
visitor f ; visitor ; visiteuse ; Besucherin ; посетительница ins=посетительницей ; زائرة ; 女参观者
collector m ; collector ; collectionneur ; Sammler ; коллекционер ; جامع+تحف ; 收藏家
architect m ; architect ; architecte ; Architekt>Architekten ; архитектор ; مهندس&معماري ; 建筑师
bricklayer m ; bricklayer ; maçon ; Maurer ; каменщик ; بناء ; 泥瓦匠
electrician m ; electrician ; électricien ; Elektriker ; электрик ; كهربائي ; 电工
carpenter m ; carpenter ; charpentier ; Zimmermann~Tischler ; плотник ; نجار ; 木匠
engineer m ; engineer ; ingénieur ; Ingenieur ; инженер ; مهندس ; 工程师
"""
