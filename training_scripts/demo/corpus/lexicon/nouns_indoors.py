# ruff: noqa: E501 - one row a concept, in six languages
"""Things of the indoor topics: kitchen, hospital, school, library, concert, town hall, museum.

A row is ``id class ; English ; French ; German ; Russian ; Arabic ; Chinese``. A ``+`` after the id marks what
can be carried, a ``-`` what cannot be seen. Cells hold the singular and the plural (Russian: the genitive
plural), a grammatical gender before them and a measure word before the Chinese noun; a plural ``-`` marks a
mass noun, ``_`` a space, ``~`` a synonym, ``stem=`` and ``ins=`` irregular Russian forms, ``tool=`` the Russian
phrase where the instrumental does not do.
"""

from __future__ import annotations

ROWS = """
bread+ food ; bread - ; m pain - ; n Brot - ; m хлеб - ; m خبز - ; 些 面包
soup food ; soup - ; f soupe - ; f Suppe - ; m суп - ; m حساء - ; 些 汤
meat+ food ; meat - ; f viande - ; n Fleisch - ; n мясо - ; m لحم - ; 些 肉
salad food ; salad - ; f salade - ; m Salat - ; m салат - ; f سلطة - ; 些 沙拉
sauce food ; sauce - ; f sauce - ; f Soße - ; m соус - ; f صلصة - ; 些 酱汁
dough raw ; dough - ; f pâte - ; m Teig - ; n тесто - ; f عجينة - ; 些 面团
carrot+ veg ; carrot ; f carotte ; f Karotte Karotten~f Möhre Möhren ; f морковка морковок ; f جزرة جزرات ; 根 胡萝卜
onion+ veg ; onion ; m oignon ; f Zwiebel Zwiebeln ; f луковица луковиц ins=луковицей ; f بصلة بصلات ; 个 洋葱
cake+ food ; cake ; m gâteau gâteaux ; m Kuchen Kuchen ; m торт тортов ; f كعكة كعكات ; 个 蛋糕
egg+ veg ; egg ; m œuf ; n Ei Eier ; n яйцо яиц ins=яйцом ; f بيضة بيضات ; 个 鸡蛋
plate+ thing ; plate ; f assiette ; m Teller Teller ; f тарелка тарелок ; m طبق أطباق~m صحن صحون ; 个 盘子
cup+ box ; cup ; f tasse ; f Tasse Tassen ; f чашка чашек ; m فنجان فناجين ; 个 杯子
pot+ box ; pot ; f marmite ; m Topf Töpfe ; f кастрюля кастрюль ; f طنجرة طناجر ; 口 锅
spoon+ thing ; spoon ; f cuillère ; m Löffel Löffel ; f ложка ложек ; f ملعقة ملاعق ; 把 勺子
knife+ blade ; knife knives ; m couteau couteaux ; n Messer Messer ; m нож ножей ins=ножом ; m سكين سكاكين ; 把 刀
wound injury ; wound ; f blessure~f plaie ; f Wunde Wunden ; f рана ран ; m جرح جروح ; 处 伤口
bandage+ cloth ; bandage ; m bandage ; m Verband Verbände ; f повязка повязок ; f ضمادة ضمادات ; 条 绷带
medicine+ drug ; medicine ; m médicament ; n Medikament Medikamente ; n лекарство лекарств ; m دواء أدوية ; 种 药
thermometer+ tool ; thermometer ; m thermomètre ; n Thermometer Thermometer ; m термометр термометров~m градусник градусников ; m ميزان+حرارة موازين+حرارة ; 支 体温计
prescription+ paper ; prescription ; f ordonnance ; n Rezept Rezepte ; m рецепт рецептов ; f وصفة وصفات ; 张 药方
syringe+ tool ; syringe ; f seringue ; f Spritze Spritzen ; m шприц шприцев ; f حقنة حقن ; 支 注射器
microscope+ device ; microscope ; m microscope ; n Mikroskop Mikroskope ; m микроскоп микроскопов ; m مجهر مجاهر ; 台 显微镜
bed thing ; bed ; m lit ; n Bett Betten ; f кровать кроватей ; m سرير أسرة ; 张 床
report+ text ; report ; m rapport ; m Bericht Berichte ; m отчёт отчётов ; m تقرير تقارير ; 份 报告
blanket+ cloth ; blanket ; f couverture ; f Decke Decken ; n одеяло одеял ; f بطانية بطانيات ; 条 毯子
glove+ cloth ; glove ; m gant ; m Handschuh Handschuhe ; f перчатка перчаток ; m قفاز قفازات ; 只 手套
notebook+ thing ; notebook ; m cahier ; n Heft Hefte ; f тетрадь тетрадей ; m دفتر دفاتر ; 本 作业本
poem verse ; poem ; m poème ; n Gedicht Gedichte ; n стихотворение стихотворений ; f قصيدة قصائد ; 首 诗
essay+ text ; essay ; f rédaction ; m Aufsatz Aufsätze ; n сочинение сочинений ; m مقال مقالات ; 篇 作文
blackboard thing ; blackboard ; m tableau tableaux ; f Tafel Tafeln ; f доска досок ; f سبورة سبورات ; 块 黑板
dictionary+ book ; dictionary ; m dictionnaire ; n Wörterbuch Wörterbücher ; m словарь словарей ins=словарём ; m قاموس قواميس~m معجم معاجم ; 本 词典
pencil+ tool ; pencil ; m crayon ; m Bleistift Bleistifte ; m карандаш карандашей ins=карандашом ; m قلم+رصاص أقلام+رصاص ; 支 铅笔
exam- task ; exam~test ; m examen ; f Prüfung Prüfungen~m Test Tests ; m тест тестов ; m امتحان امتحانات ; 份 试卷
lesson- task ; lesson ; f leçon ; f Lektion Lektionen ; m урок уроков ; m درس دروس ; 堂 课
question- task ; question ; f question ; f Frage Fragen ; m вопрос вопросов ; m سؤال أسئلة ; 个 问题
ruler+ tool ; ruler ; f règle ; n Lineal Lineale ; f линейка линеек ; f مسطرة مساطر ; 把 尺子
schoolbag+ box ; school_bag ; m cartable ; f Schultasche Schultaschen ; m ранец ранцев stem=ранц ; f حقيبة حقائب ; 个 书包
book+ book ; book ; m livre ; n Buch Bücher ; f книга книг ; m كتاب كتب ; 本 书
novel+ book ; novel ; m roman ; m Roman Romane ; m роман романов ; f رواية روايات ; 部 小说
letter+ text ; letter ; f lettre ; m Brief Briefe ; n письмо писем ; f رسالة رسائل ; 封 信
magazine+ book ; magazine ; m magazine~f revue ; f Zeitschrift Zeitschriften ; m журнал журналов ; f مجلة مجلات ; 本 杂志
catalogue+ book ; catalogue ; m catalogue ; m Katalog Kataloge ; m каталог каталогов ; m فهرس فهارس ; 份 目录
shelf thing ; shelf shelves ; f étagère ; n Regal Regale ; f полка полок ; m رف رفوف ; 个 书架
lamp+ device ; lamp ; f lampe ; f Lampe Lampen ; f лампа ламп ; m مصباح مصابيح ; 盏 台灯
manuscript+ book ; manuscript ; m manuscrit ; n Manuskript Manuskripte~f Handschrift Handschriften ; f рукопись рукописей ; f مخطوطة مخطوطات ; 份 手稿
encyclopedia+ book ; encyclopedia ; f encyclopédie ; f Enzyklopädie Enzyklopädien ; f энциклопедия энциклопедий ; f موسوعة موسوعات ; 部 百科全书
photo+ picture ; photo~photograph ; f photo~f photographie ; n Foto Fotos ; f фотография фотографий ; f صورة صور ; 张 照片
table thing ; table ; f table ; m Tisch Tische ; m стол столов ; f طاولة طاولات ; 张 桌子
key+ tool ; key ; f clé ; m Schlüssel Schlüssel ; m ключ ключей ins=ключом ; m مفتاح مفاتيح ; 把 钥匙
violin+ music ; violin ; m violon ; f Geige Geigen~f Violine Violinen ; f скрипка скрипок ; m كمان - ; 把 小提琴
piano music ; piano ; m piano ; n Klavier Klaviere ; m рояль роялей ; m بيانو - ; 架 钢琴
guitar+ music ; guitar ; f guitare ; f Gitarre Gitarren ; f гитара гитар ; m غيتار - ; 把 吉他
drum+ music ; drum ; m tambour ; f Trommel Trommeln ; m барабан барабанов ; m طبل طبول ; 面 鼓
trumpet+ music ; trumpet ; f trompette ; f Trompete Trompeten ; f труба труб ; m بوق أبواق ; 把 小号
flute+ music ; flute ; f flûte ; f Flöte Flöten ; f флейта флейт ; m ناي - ; 支 长笛
song- sound ; song ; f chanson ; n Lied Lieder ; f песня песен ; f أغنية أغنيات ; 首 歌
symphony- sound ; symphony ; f symphonie ; f Sinfonie Sinfonien ; f симфония симфоний ; f سيمفونية سيمفونيات ; 部 交响曲
melody- sound ; melody ; f mélodie ; f Melodie Melodien ; f мелодия мелодий ; m لحن ألحان ; 段 旋律
score+ text ; score ; f partition ; f Partitur Partituren ; f партитура партитур ; f نوتة نوتات ; 份 乐谱
microphone+ device ; microphone ; m micro~m microphone ; n Mikrofon Mikrofone ; m микрофон микрофонов tool=на_микрофон ; m ميكروفون ميكروفونات ; 个 麦克风
programme+ text ; programme ; m programme ; n Programm Programme ; f программа программ ; m برنامج برامج ; 份 节目单
contract+ text ; contract ; m contrat ; m Vertrag Verträge ; m договор договоров~m контракт контрактов ; m عقد عقود ; 份 合同
budget- task ; budget ; m budget ; n Budget Budgets ; m бюджет бюджетов ; f ميزانية ميزانيات ; 份 预算
plan+ text ; plan ; m plan ; m Plan Pläne ; m план планов ; f خطة خطط ; 份 计划
document+ text ; document ; m document ; n Dokument Dokumente ; m документ документов ; f وثيقة وثائق ; 份 文件
form+ paper ; form ; m formulaire ; n Formular Formulare ; m бланк бланков~f анкета анкет ; f استمارة استمارات ; 张 表格
project- task ; project ; m projet ; n Projekt Projekte ; m проект проектов ; m مشروع مشاريع ; 个 项目
speech- task ; speech speeches ; m discours discours ; f Rede Reden ; f речь речей ; m خطاب خطابات ; 篇 演讲稿
petition+ text ; petition ; f pétition ; f Petition Petitionen ; f петиция петиций ; f عريضة عرائض ; 份 请愿书
law- task ; law ; f loi ; n Gesetz Gesetze ; m закон законов ; m قانون قوانين ; 项 法律
stamp+ tool ; stamp ; m tampon ; m Stempel Stempel ; f печать печатей ; m ختم أختام ; 枚 印章
pen+ tool ; pen ; m stylo ; m Kugelschreiber Kugelschreiber ; f ручка ручек ; m قلم أقلام ; 支 笔
computer device ; computer ; m ordinateur ; m Computer Computer~m Rechner Rechner ; m компьютер компьютеров tool=на_компьютере ; m حاسوب حواسيب ; 台 电脑
painting+ picture ; painting ; f peinture~f toile ; n Gemälde Gemälde ; f картина картин ; f لوحة لوحات ; 幅 画
statue art ; statue ; f statue ; f Statue Statuen ; f статуя статуй ; m تمثال تماثيل ; 尊 雕像
mask+ art ; mask ; m masque ; f Maske Masken ; f маска масок ; m قناع أقنعة ; 个 面具
drawing+ picture ; drawing ; m dessin ; f Zeichnung Zeichnungen ; m рисунок рисунков stem=рисунк ; m رسم رسوم ; 幅 素描
frame+ thing ; frame ; m cadre ; m Rahmen Rahmen ; f рама рам ; m برواز براويز ; 个 画框
exhibition- task ; exhibition ; f exposition ; f Ausstellung Ausstellungen ; f выставка выставок ; m معرض معارض ; 场 展览
brush+ tool ; brush ; m pinceau pinceaux ; m Pinsel Pinsel ; f кисть кистей ; f فرشاة فرش ; 支 画笔
magnifier+ tool ; magnifying_glass ; f loupe ; f Lupe Lupen ; f лупа луп tool=с_помощью_лупы ; f عدسة عدسات ; 个 放大镜
sword+ blade ; sword ; f épée ; n Schwert Schwerter ; m меч мечей ins=мечом ; m سيف سيوف ; 把 剑
crown+ art ; crown ; f couronne ; f Krone Kronen ; f корона корон ; m تاج تيجان ; 顶 王冠
vase+ box ; vase ; m vase ; f Vase Vasen ; f ваза ваз ; f مزهرية مزهريات ; 个 花瓶
camera+ device ; camera ; m appareil_photo appareils_photo ; f Kamera Kameras ; f камера камер tool=на_камеру~m фотоаппарат фотоаппаратов tool=на_фотоаппарат ; f كاميرا كاميرات ; 台 相机
"""
