"""Hand-checked sentences of the generated corpus: agreement, cases, elision, word order, measure words."""

from __future__ import annotations

import pytest

from training_scripts.demo.corpus import TOY_LANGUAGES
from training_scripts.demo.corpus.realise import Meaning, realise

SENTENCES = {
    Meaning("do_with", ("Anna", "cut", "bread", "knife")): (
        "Anna cut the bread with a knife.",
        "Anna a coupé le pain avec un couteau.",
        "Anna hat das Brot mit einem Messer geschnitten.",
        "Анна порезала хлеб ножом.",
        "قطعت آنا الخبز بالسكين.",
        "安娜用刀切了面包。",
    ),
    Meaning("do_not", ("nurse", "find", "key", "Monday")): (
        "The nurse did not find the key on Monday.",
        "L'infirmière n'a pas trouvé la clé lundi.",
        "Die Krankenschwester hat den Schlüssel am Montag nicht gefunden.",
        "В понедельник медсестра не нашла ключ.",
        "لم تجد الممرضة المفتاح يوم الاثنين.",
        "护士星期一没有找到钥匙。",
    ),
    Meaning("because", ("Paul", "wash", "cup", "dirty")): (
        "Paul washed the cup because it was dirty.",
        "Paul a lavé la tasse parce qu'elle était sale.",
        "Paul hat die Tasse gewaschen, weil sie schmutzig war.",
        "Павел помыл чашку, потому что она была грязной.",
        "غسل بول الفنجان لأنه كان قذرا.",
        "保罗洗了杯子，因为它很脏。",
    ),
    Meaning("compare", ("table", "heavy", "blackboard")): (
        "The table was heavier than the blackboard.",
        "La table était plus lourde que le tableau.",
        "Der Tisch war schwerer als die Tafel.",
        "Стол был тяжелее, чем доска.",
        "كانت الطاولة أثقل من السبورة.",
        "桌子比黑板更重。",
    ),
    Meaning("quantity", ("waitress", "buy", "5", "apple", "market")): (
        "The waitress bought five apples at the market.",
        "La serveuse a acheté cinq pommes au marché.",
        "Die Kellnerin hat auf dem Markt fünf Äpfel gekauft.",
        "Официантка купила пять яблок на рынке.",
        "اشترت النادلة خمس تفاحات في السوق.",
        "女服务员在市场上买了五个苹果。",
    ),
    Meaning("quantity", ("Omar", "copy", "12", "letter", "archive")): (
        "Omar copied 12 letters in the archive.",
        "Omar a copié 12 lettres aux archives.",
        "Omar hat im Archiv 12 Briefe kopiert.",
        "Омар скопировал 12 писем в архиве.",
        "نسخ عمر 12 رسالة في الأرشيف.",
        "奥马尔在档案室里复印了12封信。",
    ),
    Meaning("go", ("Leila", "kitchen", "yesterday")): (
        "Leila went to the kitchen yesterday.",
        "Leïla est allée dans la cuisine hier.",
        "Leila ist gestern in die Küche gegangen.",
        "Вчера Лейла пошла на кухню.",
        "ذهبت ليلى إلى المطبخ أمس.",
        "莱拉昨天去了厨房。",
    ),
    Meaning("give", ("boy", "give", "book", "teacher")): (
        "The boy gave the book to the teacher.",
        "Le garçon a donné le livre à l'enseignante.",
        "Der Junge hat der Lehrerin das Buch gegeben.",
        "Мальчик дал учительнице книгу.",
        "سلم الولد الكتاب للمعلمة.",
        "男孩把书交给了老师。",
    ),
    Meaning("together", ("Ivan", "student", "paint", "wall", "yard")): (
        "Ivan painted the wall together with the student in the yard.",
        "Ivan a peint le mur avec l'étudiante dans la cour.",
        "Iwan hat die Wand zusammen mit der Studentin im Hof gestrichen.",
        "Иван вместе со студенткой покрасил стену во дворе.",
        "دهن إيفان الجدار مع الطالبة في الفناء.",
        "伊万和女大学生一起在院子里漆了墙。",
    ),
    Meaning("passive", ("door", "open", "doctor", "7:30")): (
        "The door was opened by the doctor at 7:30.",
        "La porte a été ouverte par le médecin à 7 h 30.",
        "Die Tür wurde um 7:30 Uhr vom Arzt geöffnet.",
        "Дверь в 7:30 открыл врач.",
        "الباب فتحه الطبيب في الساعة 7:30.",
        "门7点30分被医生打开了。",
    ),
    Meaning("habit", ("f_pronoun", "fill_in", "form", "every_day")): (
        "Every day, she fills in the form.",
        "Tous les jours, elle complète le formulaire.",
        "Jeden Tag füllt sie das Formular aus.",
        "Каждый день она заполняет бланк.",
        "تعبئ الاستمارة كل يوم.",
        "她每天都填写表格。",
    ),
    Meaning("must", ("Nina", "prepare", "exam", "Friday")): (
        "Nina had to prepare the exam on Friday.",
        "Nina a dû préparer l'examen vendredi.",
        "Nina musste am Freitag die Prüfung vorbereiten.",
        "В пятницу Нина должна была подготовить тест.",
        "كان على نينا أن تجهز الامتحان يوم الجمعة.",
        "尼娜星期五必须准备试卷。",
    ),
    Meaning("feel_because", ("mayor", "angry", "Peter", "lose", "contract")): (
        "The mayor was angry because Peter lost the contract.",
        "Le maire était en colère car Pierre avait perdu le contrat.",
        "Der Bürgermeister war wütend, weil Peter den Vertrag verloren hatte.",
        "Мэр злился, потому что Пётр потерял договор.",
        "كان العمدة غاضبا لأن بيتر فقد العقد.",
        "市长很生气，因为彼得弄丢了合同。",
    ),
    Meaning("stay", ("f_pronoun", "cellar", "rain")): (
        "She stayed in the cellar because it was raining.",
        "Elle est restée à la cave car il pleuvait.",
        "Sie ist im Keller geblieben, weil es regnete.",
        "Она осталась в подвале, потому что шёл дождь.",
        "بقيت في القبو لأن المطر كان يهطل.",
        "因为下雨了，她留在地下室里。",
    ),
    Meaning("there_was", ("window", "dirty", "classroom")): (
        "There was a dirty window in the classroom.",
        "Il y avait une fenêtre sale dans la salle de classe.",
        "Im Klassenzimmer gab es ein schmutziges Fenster.",
        "В классе было грязное окно.",
        "كانت هناك نافذة قذرة في الصف.",
        "教室里有一扇脏的窗户。",
    ),
    Meaning("there_was_no", ("bread", "kitchen", "noon")): (
        "There was no bread in the kitchen at noon.",
        "Il n'y avait pas de pain dans la cuisine à midi.",
        "Am Mittag gab es in der Küche kein Brot.",
        "В полдень на кухне не было хлеба.",
        "لم يكن هناك خبز في المطبخ عند الظهر.",
        "中午厨房里没有面包。",
    ),
    Meaning("attribute", ("farmer", "feed", "horse", "black", "stable")): (
        "The farmer fed the black horse in the stable.",
        "Le fermier a nourri le cheval noir dans l'étable.",
        "Der Bauer hat das schwarze Pferd im Stall gefüttert.",
        "Фермер накормил чёрную лошадь в хлеву.",
        "أطعم المزارع الحصان الأسود في الإسطبل.",
        "农夫在牲口棚里喂了黑色的马。",
    ),
    Meaning("did", ("m_pronoun", "eat", "egg", "garden")): (
        "Did he eat the egg in the garden?",
        "Est-ce qu'il a mangé l'œuf dans le jardin ?",
        "Hat er das Ei im Garten gegessen?",
        "Съел ли он яйцо в саду?",
        "هل أكل البيضة في الحديقة؟",
        "他在花园里吃鸡蛋了吗？",
    ),
    Meaning("forgot", ("Emma", "close", "window", "night")): (
        "Emma forgot to close the window at night.",
        "Emma a oublié de fermer la fenêtre la nuit.",
        "Emma vergaß in der Nacht, das Fenster zu schließen.",
        "Ночью Эмма забыла закрыть окно.",
        "نسيت إيما أن تغلق النافذة في الليل.",
        "艾玛夜里忘了关上窗户。",
    ),
    Meaning("weather", ("cold_air", "Moscow", "Sunday")): (
        "It was cold in Moscow on Sunday.",
        "Dimanche, il faisait froid à Moscou.",
        "Am Sonntag war es in Moskau kalt.",
        "В воскресенье в Москве было холодно.",
        "كان الجو باردا في موسكو يوم الأحد.",
        "星期天莫斯科天气很冷。",
    ),
    Meaning("wait", ("Thomas", "referee", "entrance", "Sunday")): (
        "Thomas waited for the referee at the entrance on Sunday.",
        "Thomas a attendu l'arbitre à l'entrée dimanche.",
        "Thomas hat am Sonntag am Eingang auf den Schiedsrichter gewartet.",
        "В воскресенье Томас ждал судью у входа.",
        "انتظر توماس الحكم عند المدخل يوم الأحد.",
        "托马斯星期天在入口处等裁判。",
    ),
    Meaning("do_place", ("Anna", "cut", "bread", "kitchen"), "then"): (
        "Then Anna cut the bread in the kitchen.",
        "Ensuite, Anna a coupé le pain dans la cuisine.",
        "Dann hat Anna das Brot in der Küche geschnitten.",
        "Потом Анна порезала хлеб на кухне.",
        "ثم قطعت آنا الخبز في المطبخ.",
        "然后，安娜在厨房里切了面包。",
    ),
}


@pytest.mark.parametrize("language", TOY_LANGUAGES)
@pytest.mark.parametrize("meaning", SENTENCES, ids=lambda meaning: meaning.template)
def test_sentence(meaning, language):
    assert realise(meaning, language) == SENTENCES[meaning][TOY_LANGUAGES.index(language)]
