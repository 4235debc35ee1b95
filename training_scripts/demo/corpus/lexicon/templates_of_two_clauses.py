"""Questions, passives and sentences with a second verb or clause; the notation is that of ``templates``."""

from __future__ import annotations

TEMPLATES = """
said: s o a
en {s} said that {o} was {a}
fr {s} a dit que {o} était {a@o}
de {s} [hat] gesagt, dass {o} {a} war
ru {s} <s|сказал|сказала>, что {o} {a.nom@o}
ar <s|قال|قالت> {s} إن {o} {a@o}
zh {s}说{o}{a.pred}

?did: s v o p
en did {s} {v} {o} {p}?
fr est-ce {s.que} a {v.pp} {o} {p} ?
de hat {s} {o.acc} {p} {v.pp}?
ru {v.past@s} ли {s} {o.acc} {p}?
ar هل {v.past@s} {s} {o} {p}؟
zh {s}{p}{v}{o}了吗？

?why_not: s v o t
en why did {s} not {v} {o} {t}? // why didn't {s} {v} {o} {t}?
fr pourquoi est-ce {s.que} n'a pas {v.pp} {o} {t} ?
de warum hat {s} {t} {o.acc} nicht {v.pp}?
ru почему {s} {t} не {v.past@s} {o.acc}?
ar لماذا لم {v.juss@s} {s} {o} {t}؟
zh {s}{t}为什么没有{v}{o}？ // 为什么{s}{t}没有{v}{o}？

passive: o v r t
en {o} was {v.pp} by {r} {t}
fr {o} a été {v.pp@o} par {r} {t}
de {o} [wurde] {t} {r.von} {v.pp}
ru {o.acc} {t} {v.past@r} {r}
ar {o} {v.past_it@r@o} {r} {t}
zh {o}{t}被{r}{v}了

started: s v o t
en {s} started to {v} {o} {t} // {s} began to {v} {o} {t}
fr {s} a commencé à {v} {o} {t}
de {s} [begann] {t}, {o.acc} {v.zu} // {t} [begann] {s}, {o.acc} {v.zu}
ru {t} {s} <s|начал|начала> {v.imperf} {o.acc} // {t} {s} <s|стал|стала> {v.imperf} {o.acc}
ar بدأ{s.t} {s} {v.pres@s} {o} {t}
zh {s}{t}开始{v}{o}

?habit: s v o t
en {t}, {s} {v.pres} {o} // {s} {v.pres} {o} {t}
fr {t}, {s} {v.pres} {o} // {s} {v.pres} {o} {t}
de {t} [{v.pres}] {s} {o.acc} {v.particle} // {s} [{v.pres}] {t} {o.acc} {v.particle}
ru {t} {s} {v.pres} {o.acc} // {s} {t} {v.pres} {o.acc}
ar {v.pres@s} {s} {o} {t} // {t} {v.pres@s} {s} {o}
zh {s}{t}都{v}{o} // {t}{s}都{v}{o}

both_things: s v o o2 p
en {s} {v.past} {o} and {o2} {p}
fr {s} a {v.pp} {o} et {o2} {p}
de {s} [hat] {o.acc} und {o2.acc} {p} {v.pp}
ru {s} {v.past@s} {o.acc} и {o2.acc} {p} // {p} {s} {v.past@s} {o.acc} и {o2.acc}
ar {v.past@s} {s} {o} و{o2} {p}
zh {s}{p}{v}了{o}和{o2}

?and_then: s v o v2 o2
en {s} {v.past} {o} and then {v2.past} {o2}
fr {s} a {v.pp} {o}, puis {v2.pp} {o2} // {s} a {v.pp} {o} et ensuite {v2.pp} {o2}
de {s} [hat] {o.acc} {v.pp} und dann {o2.acc} {v2.pp}
ru {s} {v.past@s} {o.acc}, а потом {v2.past@s} {o2.acc}
ar {v.past@s} {s} {o} ثم {v2.past@s} {o2}
zh {s}{v}了{o}，然后{v2}了{o2} // {s}先{v}了{o}，然后{v2}了{o2}

two_people: s v o r v2 o2
en {s} {v.past} {o}, and {r} {v2.past} {o2}
fr {s} a {v.pp} {o} et {r} a {v2.pp} {o2}
de {s} [hat] {o.acc} {v.pp}, und {r} hat {o2.acc} {v2.pp}
ru {s} {v.past@s} {o.acc}, а {r} {v2.past@r} {o2.acc}
ar {v.past@s} {s} {o} و{v2.past@r} {r} {o2}
zh {s}{v}了{o}，{r}{v2}了{o2}

forgot: s v o t
en {s} forgot to {v} {o} {t}
fr {s} a oublié {v.de} {o} {t}
de {s} [vergaß] {t}, {o.acc} {v.zu} // {t} [vergaß] {s}, {o.acc} {v.zu}
ru {t} {s} <s|забыл|забыла> {v} {o.acc}
ar <s|نسي|نسيت> {s} أن {v.pres@s} {o} {t}
zh {s}{t}忘了{v}{o} // {s}{t}忘记{v}{o}

help: s r v o p
en {s} helped {r} to {v} {o} {p} // {s} helped {r} {v} {o} {p}
fr {s} a aidé {r} à {v} {o} {p}
de {s} [half] {r.dat}, {o.acc} {p} {v.zu}
ru {s} <s|помог|помогла> {r.dat} {v} {o.acc} {p}
ar <s|ساعد|ساعدت> {s} {r.acc} على أن {v.pres@r} {o} {p}
zh {s}{p}帮{r}{v}了{o}

?will: s v o t
en {t}, {s} is going to {v} {o} // {s} is going to {v} {o} {t}
fr {t}, {s} va {v} {o} // {s} va {v} {o} {t}
de {t} [wird] {s} {o.acc} {v} // {s} [wird] {t} {o.acc} {v}
ru {t} {s} собирается {v} {o.acc} // {s} собирается {v} {o.acc} {t}
ar {v.fut@s} {s} {o} {t} // {t} {v.fut@s} {s} {o}
zh {s}{t}要{v}{o} // {t}{s}要{v}{o}

wait: s r p t
en {s} waited for {r} {p} {t} // {t}, {s} waited for {r} {p}
fr {s} a attendu {r} {p} {t} // {t}, {s} a attendu {r} {p}
de {s} [hat] {t} {p} auf {r.acc} gewartet // {t} [hat] {s} {p} auf {r.acc} gewartet
ru {t} {s} <s|ждал|ждала> {r.acc} {p} // {s} {t} <s|ждал|ждала> {r.acc} {p}
ar <s|انتظر|انتظرت> {s} {r.acc} {p} {t}
zh {s}{t}{p}等{r} // {t}{s}{p}等{r}

meet: s r p t
en {s} met {r} {p} {t} // {t}, {s} met {r} {p}
fr {s} a rencontré {r} {p} {t} // {t}, {s} a rencontré {r} {p}
de {s} [hat] {t} {r.acc} {p} getroffen // {t} [hat] {s} {r.acc} {p} getroffen
ru {t} {s} <s|встретил|встретила> {r.acc} {p} // {s} {t} <s|встретил|встретила> {r.acc} {p}
ar <s|قابل|قابلت> {s} {r.acc} {p} {t}
zh {s}{t}{p}遇见了{r} // {t}{s}{p}遇见了{r}

look_find: s o o2 p
en {s} looked for {o} {p} but found {o2}
fr {s} a cherché {o} {p}, mais a trouvé {o2}
de {s} [hat] {p} {o.acc} gesucht, aber {o2.acc} gefunden
ru {s} <s|искал|искала> {o.acc} {p}, но <s|нашёл|нашла> {o2.acc}
ar <s|بحث|بحثت> {s} عن {o} {p} <s|ولكنه وجد|ولكنها وجدت> {o2}
zh {s}{p}找{o}，却找到了{o2} // {s}{p}找{o}，但是找到了{o2}

?located: o a p
en the {a} {o.bare} was {p}
fr {o} {a@o} était {p}
de {o.art} {a.nom@o} {o.bare} [war] {p} // {p} [war] {o.art} {a.nom@o} {o.bare}
ru {a.nom@o} {o} <o|был|была|было> {p}
ar <o|كان|كانت> {o} {a.def@o} {p}
zh {a.attr}{o}{p}

?contrast: o a o2 a2
en {o} was {a}, but {o2} was {a2}
fr {o} était {a@o}, mais {o2} était {a2@o2}
de {o} [war] {a}, aber {o2} war {a2}
ru {o} <o|был|была|было> {a.ins@o}, а {o2} <o2|был|была|было> {a2.ins@o2}
ar <o|كان|كانت> {o} {a.acc@o} ولكن {o2} <o2|كان|كانت> {a2.acc@o2}
zh {o}{a.pred}，但是{o2}{a2.pred} // {o}{a.pred}，可是{o2}{a2.pred}

?where: s o t
en {t}, {s} did not know where {o} was // {s} did not know where {o} was {t}
fr {t}, {s} ne savait pas où était {o}
de {t} [wusste] {s} nicht, wo {o} war // {s} [wusste] {t} nicht, wo {o} war
ru {t} {s} не <s|знал|знала>, где {o}
ar {t} لم <s|يعرف|تعرف> {s} أين <o|كان|كانت> {o} // لم <s|يعرف|تعرف> {s} أين <o|كان|كانت> {o} {t}
zh {s}{t}不知道{o}在哪里 // {t}{s}不知道{o}在哪里
"""
