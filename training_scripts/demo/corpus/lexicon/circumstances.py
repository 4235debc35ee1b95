# ruff: noqa: E501 - one row a concept, in six languages
"""Places, cities, times, weather, feelings, numbers and connectives: mostly whole phrases.

``PLACES`` rows are ``id flags ; English ; French ; German at>to ; Russian at>to ; Arabic ; Chinese noun>localiser``;
flag ``in`` marks a shelter from the weather, ``go`` a place people walk to. ``WEATHER`` German cells are
``finite verb/middle/end`` and Arabic ones ``main clause/clause after "because"``; ``FEELINGS`` hold masculine and
feminine predicates.
"""

from __future__ import annotations

PLACES = """
kitchen in,go ; in the kitchen ; dans la cuisine ; in der Küche>in die Küche ; на кухне>на кухню ; في المطبخ ; 厨房>里
dining_room in,go ; in the dining room ; dans la salle à manger ; im Esszimmer>ins Esszimmer ; в столовой>в столовую ; في غرفة الطعام ; 餐厅>里
terrace go ; on the terrace ; sur la terrasse ; auf der Terrasse>auf die Terrasse ; на террасе>на террасу ; على الشرفة ; 露台>上
hospital in,go ; in the hospital ; à l'hôpital ; im Krankenhaus>ins Krankenhaus ; в больнице>в больницу ; في المستشفى ; 医院>里
waiting_room in,go ; in the waiting room ; dans la salle d'attente ; im Wartezimmer>ins Wartezimmer ; в приёмной>в приёмную ; في غرفة الانتظار ; 候诊室>里
pharmacy in,go ; in the pharmacy ; à la pharmacie ; in der Apotheke>in die Apotheke ; в аптеке>в аптеку ; في الصيدلية ; 药房>里
classroom in,go ; in the classroom ; dans la salle de classe ; im Klassenzimmer>ins Klassenzimmer ; в классе>в класс ; في الصف ; 教室>里
schoolyard go ; in the schoolyard ; dans la cour de l'école ; auf dem Schulhof>auf den Schulhof ; во дворе школы>во двор школы ; في ساحة المدرسة ; 校园>里
gym in,go ; in the gym ; au gymnase ; in der Turnhalle>in die Turnhalle ; в спортзале>в спортзал ; في الصالة الرياضية ; 体育馆>里
stadium go ; in the stadium ; au stade ; im Stadion>ins Stadion ; на стадионе>на стадион ; في الملعب ; 体育场>里
grandstand go ; in the stands ; dans les tribunes ; auf der Tribüne>auf die Tribüne ; на трибуне>на трибуну ; في المدرجات ; 看台>上
changing_room in,go ; in the changing room ; dans le vestiaire ; in der Umkleide>in die Umkleide ; в раздевалке>в раздевалку ; في غرفة الملابس ; 更衣室>里
station in,go ; at the station ; à la gare ; am Bahnhof>zum Bahnhof ; на вокзале>на вокзал ; في المحطة ; 火车站>里
platform go ; on the platform ; sur le quai ; auf dem Bahnsteig>auf den Bahnsteig ; на перроне>на перрон ; على الرصيف ; 站台>上
train in ; on the train ; dans le train ; im Zug>in den Zug ; в поезде>в поезд ; في القطار ; 火车>上
compartment in,go ; in the compartment ; dans le compartiment ; im Abteil>ins Abteil ; в купе>в купе ; في المقصورة ; 包厢>里
farm go ; on the farm ; à la ferme ; auf dem Bauernhof>auf den Bauernhof ; на ферме>на ферму ; في المزرعة ; 农场>里
stable in,go ; in the stable ; dans l'étable ; im Stall>in den Stall ; в хлеву>в хлев ; في الإسطبل ; 牲口棚>里
meadow go ; in the meadow ; dans le pré ; auf der Wiese>auf die Wiese ; на лугу>на луг ; في المرج ; 草地>上
barn in,go ; in the barn ; dans la grange ; in der Scheune>in die Scheune ; в амбаре>в амбар ; في الحظيرة ; 谷仓>里
harbour go ; in the harbour ; au port ; im Hafen>in den Hafen ; в порту>в порт ; في الميناء ; 港口>里
deck go ; on deck ; sur le pont du bateau ; an Deck>an Deck ; на палубе>на палубу ; على سطح السفينة ; 甲板>上
island - ; on the island ; sur l'île ; auf der Insel>auf die Insel ; на острове>на остров ; على الجزيرة ; 岛>上
cabin in,go ; in the cabin ; dans la cabine ; in der Kajüte>in die Kajüte ; в каюте>в каюту ; في المقصورة البحرية ; 船舱>里
market go ; at the market ; au marché ; auf dem Markt>auf den Markt ; на рынке>на рынок ; في السوق ; 市场>上
shop in,go ; in the shop ; dans le magasin ; im Laden>in den Laden ; в магазине>в магазин ; في المتجر ; 商店>里
square go ; on the square ; sur la place ; auf dem Platz>auf den Platz ; на площади>на площадь ; في الميدان ; 广场>上
library in,go ; in the library ; à la bibliothèque ; in der Bibliothek>in die Bibliothek ; в библиотеке>в библиотеку ; في المكتبة ; 图书馆>里
reading_room in,go ; in the reading room ; dans la salle de lecture ; im Lesesaal>in den Lesesaal ; в читальном зале>в читальный зал ; في قاعة المطالعة ; 阅览室>里
archive in,go ; in the archive ; aux archives ; im Archiv>ins Archiv ; в архиве>в архив ; في الأرشيف ; 档案室>里
concert_hall in,go ; in the concert hall ; dans la salle de concert ; im Konzertsaal>in den Konzertsaal ; в концертном зале>в концертный зал ; في قاعة الحفلات ; 音乐厅>里
stage in,go ; on stage ; sur scène ; auf der Bühne>auf die Bühne ; на сцене>на сцену ; على المسرح ; 舞台>上
studio in,go ; in the studio ; au studio ; im Studio>ins Studio ; в студии>в студию ; في الاستوديو ; 录音室>里
workshop in,go ; in the workshop ; dans l'atelier ; in der Werkstatt>in die Werkstatt ; в мастерской>в мастерскую ; في الورشة ; 车间>里
petrol_station go ; at the petrol station ; à la station-service ; an der Tankstelle>zur Tankstelle ; на заправке>на заправку ; في محطة الوقود ; 加油站>里
car_park go ; in the car park ; sur le parking ; auf dem Parkplatz>auf den Parkplatz ; на стоянке>на стоянку ; في موقف السيارات ; 停车场>里
garden go ; in the garden ; dans le jardin ; im Garten>in den Garten ; в саду>в сад ; في الحديقة ; 花园>里
greenhouse in,go ; in the greenhouse ; dans la serre ; im Gewächshaus>ins Gewächshaus ; в теплице>в теплицу ; في الدفيئة ; 温室>里
shed in,go ; in the shed ; dans la remise ; im Schuppen>in den Schuppen ; в сарае>в сарай ; في السقيفة ; 棚子>里
park go ; in the park ; dans le parc ; im Park>in den Park ; в парке>в парк ; في المتنزه ; 公园>里
town_hall in,go ; in the town hall ; à la mairie ; im Rathaus>ins Rathaus ; в мэрии>в мэрию ; في دار البلدية ; 市政厅>里
office in,go ; in the office ; au bureau ; im Büro>ins Büro ; в офисе>в офис ; في المكتب ; 办公室>里
meeting_room in,go ; in the meeting room ; dans la salle de réunion ; im Sitzungssaal>in den Sitzungssaal ; в зале заседаний>в зал заседаний ; في قاعة الاجتماعات ; 会议室>里
hut in,go ; in the mountain hut ; au refuge ; in der Berghütte>in die Berghütte ; в горной хижине>в горную хижину ; في الكوخ ; 山间小屋>里
valley go ; in the valley ; dans la vallée ; im Tal>ins Tal ; в долине>в долину ; في الوادي ; 山谷>里
forest go ; in the forest ; dans la forêt ; im Wald>in den Wald ; в лесу>в лес ; في الغابة ; 森林>里
museum in,go ; in the museum ; au musée ; im Museum>ins Museum ; в музее>в музей ; في المتحف ; 博物馆>里
gallery in,go ; in the gallery ; dans la galerie ; in der Galerie>in die Galerie ; в галерее>в галерею ; في صالة العرض ; 画廊>里
entrance go ; at the entrance ; à l'entrée ; am Eingang>zum Eingang ; у входа>ко входу ; عند المدخل ; 入口>处
building_site go ; on the building site ; sur le chantier ; auf der Baustelle>auf die Baustelle ; на стройке>на стройку ; في موقع البناء ; 工地>上
cellar in,go ; in the cellar ; à la cave ; im Keller>in den Keller ; в подвале>в подвал ; في القبو ; 地下室>里
yard go ; in the yard ; dans la cour ; im Hof>in den Hof ; во дворе>во двор ; في الفناء ; 院子>里
"""

CITIES = """
London ; in London ; à Londres ; in London>nach London ; в Лондоне>в Лондон ; في لندن ; 伦敦>
Paris ; in Paris ; à Paris ; in Paris>nach Paris ; в Париже>в Париж ; في باريس ; 巴黎>
Berlin ; in Berlin ; à Berlin ; in Berlin>nach Berlin ; в Берлине>в Берлин ; في برلين ; 柏林>
Cairo ; in Cairo ; au Caire ; in Kairo>nach Kairo ; в Каире>в Каир ; في القاهرة ; 开罗>
Moscow ; in Moscow ; à Moscou ; in Moskau>nach Moskau ; в Москве>в Москву ; في موسكو ; 莫斯科>
Beijing ; in Beijing ; à Pékin ; in Peking>nach Peking ; в Пекине>в Пекин ; في بكين ; 北京>
Rome ; in Rome ; à Rome ; in Rom>nach Rom ; в Риме>в Рим ; في روما ; 罗马>
Vienna ; in Vienna ; à Vienne ; in Wien>nach Wien ; в Вене>в Вену ; في فيينا ; 维也纳>
Istanbul ; in Istanbul ; à Istanbul ; in Istanbul>nach Istanbul ; в Стамбуле>в Стамбул ; في إسطنبول ; 伊斯坦布尔>
Madrid ; in Madrid ; à Madrid ; in Madrid>nach Madrid ; в Мадриде>в Мадрид ; في مدريد ; 马德里>
"""

DAYS = """
yesterday ; yesterday ; hier ; gestern ; вчера ; أمس ; 昨天
Monday ; on Monday ; lundi ; am Montag ; в понедельник ; يوم الاثنين ; 星期一
Tuesday ; on Tuesday ; mardi ; am Dienstag ; во вторник ; يوم الثلاثاء ; 星期二
Wednesday ; on Wednesday ; mercredi ; am Mittwoch ; в среду ; يوم الأربعاء ; 星期三
Thursday ; on Thursday ; jeudi ; am Donnerstag ; в четверг ; يوم الخميس ; 星期四
Friday ; on Friday ; vendredi ; am Freitag ; в пятницу ; يوم الجمعة ; 星期五
Saturday ; on Saturday ; samedi ; am Samstag~am Sonnabend ; в субботу ; يوم السبت ; 星期六
Sunday ; on Sunday ; dimanche ; am Sonntag ; в воскресенье ; يوم الأحد ; 星期天
last_week ; last week ; la semaine dernière ; letzte Woche ; на прошлой неделе ; الأسبوع الماضي ; 上周~上个星期
last_month ; last month ; le mois dernier ; letzten Monat ; в прошлом месяце ; الشهر الماضي ; 上个月
last_year ; last year ; l'année dernière ; letztes Jahr ; в прошлом году ; العام الماضي~السنة الماضية ; 去年
March ; in March ; en mars ; im März ; в марте ; في مارس ; 三月
May ; in May ; en mai ; im Mai ; в мае ; في مايو ; 五月
July ; in July ; en juillet ; im Juli ; в июле ; في يوليو ; 七月
September ; in September ; en septembre ; im September ; в сентябре ; في سبتمبر ; 九月
December ; in December ; en décembre ; im Dezember ; в декабре ; في ديسمبر ; 十二月
"""

HOURS = """
morning ; in the morning ; le matin ; am Morgen ; утром ; في الصباح ; 早上
noon ; at noon ; à midi ; am Mittag ; в полдень ; عند الظهر ; 中午
afternoon ; in the afternoon ; l'après-midi ; am Nachmittag ; днём ; بعد الظهر ; 下午
evening ; in the evening ; le soir ; am Abend ; вечером ; في المساء ; 晚上
night ; at night ; la nuit ; in der Nacht ; ночью ; في الليل ; 夜里
"""

HABITS = """
every_day ; every day ; tous les jours~chaque jour ; jeden Tag ; каждый день ; كل يوم ; 每天
every_morning ; every morning ; tous les matins~chaque matin ; jeden Morgen ; каждое утро ; كل صباح ; 每天早上
every_evening ; every evening ; tous les soirs~chaque soir ; jeden Abend ; каждый вечер ; كل مساء ; 每天晚上
every_week ; every week ; chaque semaine~toutes les semaines ; jede Woche ; каждую неделю ; كل أسبوع ; 每个星期
every_Monday ; every Monday ; tous les lundis ; jeden Montag ; каждый понедельник ; كل يوم اثنين ; 每个星期一
every_Saturday ; every Saturday ; tous les samedis ; jeden Samstag ; каждую субботу ; كل يوم سبت ; 每个星期六
every_summer ; every summer ; chaque été ; jeden Sommer ; каждое лето ; كل صيف ; 每年夏天
every_year ; every year ; chaque année~tous les ans ; jedes Jahr ; каждый год ; كل عام ; 每年
"""

FUTURE = """
tomorrow ; tomorrow ; demain ; morgen ; завтра ; غدا ; 明天
tonight ; tonight~this evening ; ce soir ; heute Abend ; сегодня вечером ; هذا المساء ; 今晚
next_week ; next week ; la semaine prochaine ; nächste Woche ; на следующей неделе ; الأسبوع القادم ; 下周~下个星期
next_month ; next month ; le mois prochain ; nächsten Monat ; в следующем месяце ; الشهر القادم ; 下个月
next_year ; next year ; l'année prochaine ; nächstes Jahr ; в следующем году ; العام القادم ; 明年
next_Sunday ; next Sunday ; dimanche prochain ; nächsten Sonntag ; в следующее воскресенье ; يوم الأحد القادم ; 下个星期天
"""

WEATHER = """
rain ; it was raining ; il pleuvait ; regnete/es/ ; шёл дождь ; هطل المطر/المطر كان يهطل ; 下雨了
snow ; it was snowing ; il neigeait ; schneite/es/ ; шёл снег ; تساقط الثلج/الثلج كان يتساقط ; 下雪了
wind ; it was very windy ; il y avait beaucoup de vent ; wehte//ein starker Wind ; дул сильный ветер ; هبت ريح قوية/الريح كانت قوية ; 刮大风了
cold_air ; it was cold ; il faisait froid ; war/es/kalt ; было холодно ; كان الجو باردا/الجو كان باردا ; 天气很冷
heat ; it was hot ; il faisait chaud ; war/es/heiß ; было жарко ; كان الجو حارا/الجو كان حارا ; 天气很热
fog ; it was foggy ; il y avait du brouillard ; war/es/neblig ; стоял туман ; انتشر الضباب/الضباب كان كثيفا ; 起雾了
storm ; there was a storm ; il y avait une tempête ; tobte//ein Sturm ; бушевала буря ; هبت عاصفة/العاصفة كانت شديدة ; 起了暴风
thunder ; there was a thunderstorm ; il y avait un orage ; gab/es/ein Gewitter ; гремела гроза ; حدثت عاصفة رعدية/الرعد كان شديدا ; 打雷了
"""

FEELINGS = """
happy good ; happy ; était heureux,était heureuse ; glücklich ; был счастлив,была счастлива ; سعيدا,سعيدة ; 很高兴
proud good ; proud ; était fier,était fière ; stolz ; был горд,была горда ; فخورا,فخورة ; 很自豪
satisfied good ; satisfied ; était satisfait,était satisfaite ; zufrieden ; был доволен,была довольна ; راضيا,راضية ; 很满意
surprised good ; surprised ; était surpris,était surprise ; überrascht ; удивился,удивилась ; مندهشا,مندهشة ; 很惊讶
grateful good ; grateful ; était reconnaissant,était reconnaissante ; dankbar ; был благодарен,была благодарна ; ممتنا,ممتنة ; 很感激
sad bad ; sad ; était triste,était triste ; traurig ; грустил,грустила ; حزينا,حزينة ; 很难过
angry bad ; angry ; était en colère,était en colère ; wütend ; злился,злилась ; غاضبا,غاضبة ; 很生气
worried bad ; worried ; était inquiet,était inquiète ; besorgt ; беспокоился,беспокоилась ; قلقا,قلقة ; 很担心
nervous state ; nervous ; était nerveux,était nerveuse ; nervös ; нервничал,нервничала ; متوترا,متوترة ; 很紧张
tired state ; tired ; était fatigué,était fatiguée ; müde ; устал,устала ; متعبا,متعبة ; 很累
hungry_person state ; hungry ; avait faim,avait faim ; hungrig ; был голоден,была голодна ; جائعا,جائعة ; 很饿
calm_person state ; calm ; était calme,était calme ; ruhig ; был спокоен,была спокойна ; هادئا,هادئة ; 很平静
"""

NUMBERS = """
3 ; three ; trois ; drei ; три ; ثلاثة,ثلاث ; 三
4 ; four ; quatre ; vier ; четыре ; أربعة,أربع ; 四
5 ; five ; cinq ; fünf ; пять ; خمسة,خمس ; 五
6 ; six ; six ; sechs ; шесть ; ستة,ست ; 六
7 ; seven ; sept ; sieben ; семь ; سبعة,سبع ; 七
8 ; eight ; huit ; acht ; восемь ; ثمانية,ثماني ; 八
9 ; nine ; neuf ; neun ; девять ; تسعة,تسع ; 九
10 ; ten ; dix ; zehn ; десять ; عشرة,عشر ; 十
"""

CONNECTIVES = """
then ; then ; ensuite,~puis ; dann ; потом~затем ; ثم ; 然后，~接着，
after ; after that,~afterwards, ; après cela,~après ça, ; danach ; после этого ; بعد ذلك ; 之后，
later ; a little later, ; un peu plus tard, ; etwas später~wenig später ; немного позже ; بعد قليل ; 过了一会儿，
meanwhile ; meanwhile,~in the meantime, ; pendant ce temps, ; inzwischen~unterdessen ; тем временем ; في هذه الأثناء ; 这时，
suddenly ; suddenly, ; soudain,~tout à coup, ; plötzlich ; вдруг ; فجأة ; 突然，
luckily ; luckily,~fortunately, ; heureusement, ; zum Glück ; к счастью, ; لحسن الحظ ; 幸好，
finally ; finally,~in the end, ; finalement,~enfin, ; schließlich~am Ende ; наконец ; أخيرا~في النهاية ; 最后，
"""
