# ruff: noqa: E501 - one row a concept, in six languages
"""Adjectives, the things that they fit, and the reasons that they give.

Rows are ``id ; English positive comparative ; French m f ; German positive comparative [stem] ; Russian nominative
comparative ; Arabic m [f] elative ; Chinese``. A comparative ``-`` marks what is not compared, ``!`` after the id
what French would put before its noun; Chinese ``predicate/attribute`` where it is not ``很X/X的``.
"""

from __future__ import annotations

ROWS = """
new ; new - ; neuf neuve ; neu neuer ; новый - ; جديد - ; 新
old! ; old older ; vieux vieille ; alt älter ; старый старее ; قديم أقدم ; 旧
heavy ; heavy heavier ; lourd lourde ; schwer schwerer ; тяжёлый тяжелее ; ثقيل أثقل ; 重
light_weight ; light lighter ; léger légère ; leicht leichter ; лёгкий легче ; خفيف أخف ; 轻
big! ; big bigger~large larger ; grand grande ; groß größer ; большой больше ; كبير أكبر ; 大
small! ; small smaller ; petit petite ; klein kleiner ; маленький меньше ; صغير أصغر ; 小
valuable ; valuable more_valuable ; précieux précieuse ; wertvoll wertvoller ; ценный ценнее ; ثمين أثمن ; 珍贵
cheap ; cheap cheaper ; économique économique ; billig billiger ; дешёвый дешевле ; رخيص أرخص ; 便宜
clean_a ; clean cleaner ; propre propre ; sauber sauberer ; чистый чище ; نظيف أنظف ; 干净
dirty ; dirty dirtier ; sale sale ; schmutzig schmutziger~dreckig dreckiger ; грязный грязнее ; قذر أقذر ; 脏
beautiful ; beautiful more_beautiful ; magnifique magnifique ; schön schöner ; красивый красивее ; جميل أجمل ; 漂亮
broken ; broken - ; cassé cassée ; kaputt - ; сломанный - ; مكسور - ; 坏了/坏掉的
empty ; empty - ; vide vide ; leer - ; пустой - ; فارغ - ; 是空的/空的
full ; full - ; plein pleine ; voll - ; полный - ; ممتلئ - ; 是满的/满满的
solid ; solid more_solid ; solide solide ; stabil stabiler ; прочный прочнее ; متين أمتن ; 结实
useful ; useful more_useful ; utile utile ; nützlich nützlicher ; полезный полезнее ; مفيد أنفع ; 有用
sharp ; sharp sharper ; tranchant tranchante ; scharf - ; острый острее ; حاد - ; 锋利
wet ; wet - ; mouillé mouillée ; nass - ; мокрый - ; مبلل - ; 湿
fresh ; fresh - ; frais fraîche ; frisch - ; свежий - ; طازج - ; 新鲜
cold ; cold colder ; froid froide ; kalt kälter ; холодный холоднее ; بارد أبرد ; 凉
hot ; hot hotter ; chaud chaude ; heiß heißer ; горячий горячее ; ساخن أسخن ; 烫
tasty ; tasty tastier~delicious more_delicious ; délicieux délicieuse ; lecker leckerer ; вкусный вкуснее ; لذيذ ألذ ; 好吃
sweet ; sweet sweeter ; sucré sucrée ; süß süßer ; сладкий слаще ; حلو أحلى ; 甜
ripe ; ripe - ; mûr mûre ; reif - ; спелый - ; ناضج - ; 熟
long! ; long longer ; long longue ; lang länger ; длинный длиннее ; طويل أطول ; 长
short ; short shorter ; court courte ; kurz kürzer ; короткий короче ; قصير أقصر ; 短
important ; important more_important ; important importante ; wichtig wichtiger ; важный важнее ; مهم أهم ; 重要
interesting ; interesting more_interesting ; intéressant intéressante ; interessant interessanter ; интересный интереснее ; شيق - ; 有趣
boring ; boring - ; ennuyeux ennuyeuse ; langweilig - ; скучный - ; ممل - ; 无聊
difficult ; difficult more_difficult~hard harder ; difficile difficile ; schwierig schwieriger ; трудный труднее ; صعب أصعب ; 难
simple ; simple simpler ; simple simple ; einfach einfacher ; простой проще ; بسيط أبسط ; 简单
loud ; loud louder ; bruyant bruyante ; laut lauter ; громкий громче ; صاخب أصخب ; 响亮
famous ; famous more_famous ; célèbre célèbre ; berühmt berühmter ; известный известнее ; مشهور أشهر ; 有名
strong! ; strong stronger ; fort forte ; stark stärker ; сильный сильнее ; قوي أقوى ; 强壮
hungry ; hungry - ; affamé affamée ; hungrig - ; голодный - ; جائع - ; 饿
calm ; calm calmer ; calme calme ; ruhig ruhiger ; спокойный спокойнее ; هادئ أهدأ ; 安静
high! ; high higher ; haut haute ; hoch höher hoh ; высокий выше ; مرتفع أعلى ; 高
wide! ; wide wider ; large large ; breit breiter ; широкий шире ; عريض أعرض ; 宽
rare ; rare rarer ; rare rare ; selten seltener ; редкий реже ; نادر أندر ; 稀有
modern ; modern more_modern ; moderne moderne ; modern moderner ; современный современнее ; حديث أحدث ; 现代
dangerous ; dangerous more_dangerous ; dangereux dangereuse ; gefährlich gefährlicher ; опасный опаснее ; خطير أخطر ; 危险
dark ; dark darker ; sombre sombre ; dunkel dunkler dunkl ; тёмный темнее ; مظلم - ; 昏暗
fast ; fast faster ; rapide rapide ; schnell schneller ; быстрый быстрее ; سريع أسرع ; 快
red ; red - ; rouge rouge ; rot - ; красный - ; أحمر حمراء - ; 是红色的/红色的
blue ; blue - ; bleu bleue ; blau - ; синий - ; أزرق زرقاء - ; 是蓝色的/蓝色的
green ; green - ; vert verte ; grün - ; зелёный - ; أخضر خضراء - ; 是绿色的/绿色的
white ; white - ; blanc blanche ; weiß - ; белый - ; أبيض بيضاء - ; 是白色的/白色的
black ; black - ; noir noire ; schwarz - ; чёрный - ; أسود سوداء - ; 是黑色的/黑色的
yellow ; yellow - ; jaune jaune ; gelb - ; жёлтый - ; أصفر صفراء - ; 是黄色的/黄色的
"""

#: Class of things -> adjectives that fit.
FITTING: dict[str, tuple[str, ...]] = {
    kind: tuple(adjectives.split())
    for kind, adjectives in {
        "food": "fresh tasty cold cheap",
        "veg": "fresh big small cheap",
        "fruit": "ripe sweet fresh big small cheap",
        "raw": "fresh cheap wet heavy",
        "drink": "cold hot fresh",
        "thing": "old clean_a dirty new heavy beautiful broken solid white black",
        "box": "empty full heavy old new light_weight big small red blue",
        "blade": "sharp old clean_a dirty heavy beautiful",
        "tool": "new useful old light_weight broken cheap dirty black yellow",
        "device": "new modern useful broken old valuable black",
        "machine": "old loud broken modern solid dirty",
        "part": "broken new old dirty heavy solid cheap",
        "cloth": "new wet clean_a dirty old red blue green white beautiful",
        "drug": "useful new cheap dangerous valuable",
        "injury": "small big dangerous clean_a",
        "text": "important long short interesting boring simple",
        "paper": "important long short new simple",
        "verse": "beautiful long short famous difficult",
        "book": "interesting boring old new long difficult famous rare",
        "task": "difficult important simple interesting boring long",
        "picture": "beautiful old rare valuable famous small",
        "art": "valuable beautiful old famous rare heavy",
        "music": "old valuable loud beautiful new broken",
        "sound": "beautiful loud long short famous difficult",
        "card": "new important cheap old valuable",
        "game": "important difficult interesting boring long fast",
        "glass": "dirty clean_a broken big small white",
        "build": "old new high solid beautiful modern white",
        "landmark": "old new high solid beautiful modern white",
        "craft": "fast old new modern dirty red blue white",
        "vehicle": "fast old new modern dirty broken red blue green white",
        "animal": "hungry calm big small strong beautiful black white",
        "plant": "beautiful big small wet red white yellow",
        "grass": "green wet beautiful short",
        "way": "long wide dangerous beautiful",
        "rock": "high dangerous beautiful big wet",
        "hollow": "dark big small dangerous wet",
        "blaze": "big small hot dangerous",
    }.items()
}

#: Verb -> adjectives of its object that are a reason for it.
REASONS: dict[str, tuple[str, ...]] = {
    verb: tuple(adjectives.split())
    for verb, adjectives in {
        "buy": "cheap beautiful fresh new useful",
        "order": "cheap useful new",
        "sell": "old heavy valuable",
        "wash": "dirty",
        "clean": "dirty",
        "repair": "broken old",
        "change": "broken old dirty",
        "remove": "broken old dirty",
        "paint": "old white",
        "choose": "cheap beautiful light_weight fresh interesting new",
        "leave": "heavy broken old wet boring",
        "hide": "valuable rare important",
        "notice": "big loud red beautiful dirty black",
        "photograph": "beautiful rare famous old high",
        "describe": "important rare interesting dangerous famous",
        "read": "interesting important short",
        "borrow": "interesting rare useful",
        "return": "boring difficult long",
        "learn": "beautiful famous short important",
        "explain": "difficult important",
        "correct": "boring difficult long",
        "check": "old important difficult broken",
        "test": "new modern old",
        "examine": "dangerous big valuable rare",
        "dry": "wet",
        "cover": "wet valuable dirty",
        "feed": "hungry",
        "pick": "ripe beautiful big",
        "eat": "tasty sweet fresh",
        "drink": "cold fresh",
        "taste": "hot tasty fresh",
        "approve": "important simple",
        "reject": "boring difficult long",
        "discuss": "important difficult interesting",
        "publish": "important interesting",
        "carry": "heavy empty valuable",
        "fill": "empty",
        "bring": "useful fresh important",
        "find": "big red",
        "watch": "interesting important",
        "sing": "beautiful famous",
        "record": "beautiful famous",
        "cross": "wide dangerous",
        "climb": "high beautiful",
        "water_plant": "beautiful small",
        "grease": "old loud",
        "throw": "light_weight old",
        "tie": "heavy strong",
        "send": "important",
        "sign": "important",
        "copy": "important interesting rare",
        "raise": "beautiful",
        "break": "old",
    }.items()
}
