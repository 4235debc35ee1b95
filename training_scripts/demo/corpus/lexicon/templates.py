# ruff: noqa: E501 - one row a concept, in six languages
"""Sentence patterns: one line a language under ``template: slots``, variants between ``//``.

``{slot.form}`` puts a form of the slot's concept, ``{slot.form@other}`` agrees it with the gender of another slot,
``<slot|masculine|feminine|neuter>`` chooses words by gender, and German ``[finite verb]`` changes place with what
stands before it where a connective opens the sentence. Before its name, ``?`` marks templates that take no connective.
Slots: s subject, r another person, v verb, o thing, i instrument, a adjective, p place, t time, q number, f feeling,
w weather, d giving or telling; a repeated slot carries a 2.
"""

from __future__ import annotations

TEMPLATES = """
do_place: s v o p
en {s} {v.past} {o} {p}
fr {s} a {v.pp} {o} {p}
de {s} [hat] {o.acc} {p} {v.pp} // {s} [hat] {p} {o.acc} {v.pp}
ru {s} {v.past@s} {o.acc} {p} // {p} {s} {v.past@s} {o.acc}
ar {v.past@s} {s} {o} {p} // {s} {v.past@s} {o} {p}
zh {s}{p}{v}了{o}

do_time: s v o t
en {s} {v.past} {o} {t} // {t}, {s} {v.past} {o}
fr {s} a {v.pp} {o} {t} // {t}, {s} a {v.pp} {o}
de {s} [hat] {t} {o.acc} {v.pp} // {t} [hat] {s} {o.acc} {v.pp}
ru {t} {s} {v.past@s} {o.acc} // {s} {t} {v.past@s} {o.acc}
ar {v.past@s} {s} {o} {t} // {t} {v.past@s} {s} {o}
zh {s}{t}{v}了{o} // {t}{s}{v}了{o}

do_place_time: s v o p t
en {s} {v.past} {o} {p} {t} // {t}, {s} {v.past} {o} {p}
fr {s} a {v.pp} {o} {p} {t} // {t}, {s} a {v.pp} {o} {p}
de {s} [hat] {t} {o.acc} {p} {v.pp} // {t} [hat] {s} {p} {o.acc} {v.pp}
ru {t} {s} {v.past@s} {o.acc} {p} // {t} {p} {s} {v.past@s} {o.acc}
ar {v.past@s} {s} {o} {p} {t} // {t} {v.past@s} {s} {o} {p}
zh {s}{t}{p}{v}了{o} // {t}{s}{p}{v}了{o}

do_with: s v o i
en {s} {v.past} {o} with {i.indef}
fr {s} a {v.pp} {o} avec {i.indef}
de {s} [hat] {o.acc} mit {i.indef_dat} {v.pp}
ru {s} {v.past@s} {o.acc} {i.tool}
ar {v.past@s} {s} {o} {i.bi} // {s} {v.past@s} {o} {i.bi}
zh {s}用{i}{v}了{o}

do_not: s v o t
en {s} did not {v} {o} {t} // {s} didn't {v} {o} {t}
fr {s} n'a pas {v.pp} {o} {t}
de {s} [hat] {o.acc} {t} nicht {v.pp} // {t} [hat] {s} {o.acc} nicht {v.pp}
ru {t} {s} не {v.past@s} {o.acc} // {s} {t} не {v.past@s} {o.acc}
ar لم {v.juss@s} {s} {o} {t}
zh {s}{t}没有{v}{o}

want: s v o p
en {s} wanted to {v} {o} {p}
fr {s} voulait {v} {o} {p}
de {s} [wollte] {o.acc} {p} {v}
ru {s} <s|хотел|хотела> {v} {o.acc} {p}
ar <s|أراد|أرادت> {s} أن {v.pres@s} {o} {p}
zh {s}想{p}{v}{o}

must: s v o t
en {s} had to {v} {o} {t}
fr {s} a dû {v} {o} {t} // {s} devait {v} {o} {t}
de {s} [musste] {t} {o.acc} {v}
ru {t} {s} <s|должен был|должна была> {v} {o.acc}
ar كان {s.ala} أن {v.pres@s} {o} {t} // كان يجب {s.ala} أن {v.pres@s} {o} {t}
zh {s}{t}必须{v}{o} // {s}{t}得{v}{o}

could_not: s v o p
en {s} could not {v} {o} {p} // {s} couldn't {v} {o} {p}
fr {s} n'a pas pu {v} {o} {p}
de {s} [konnte] {o.acc} {p} nicht {v}
ru {s} не <s|смог|смогла> {v} {o.acc} {p}
ar لم <s|يستطع|تستطع> {s} أن {v.pres@s} {o} {p}
zh {s}没能{p}{v}{o}

because: s v o a
en {s} {v.past} {o} because it was {a}
fr {s} a {v.pp} {o} parce <o|qu'il|qu'elle> était {a@o} // {s} a {v.pp} {o} car <o|il|elle> était {a@o}
de {s} [hat] {o.acc} {v.pp}, weil <o|er|sie|es> {a} war // {s} [hat] {o.acc} {v.pp}, denn <o|er|sie|es> war {a}
ru {s} {v.past@s} {o.acc}, потому что <o|он был|она была|оно было> {a.ins@o}
ar {v.past@s} {s} {o} <o|لأنه كان|لأنها كانت> {a.acc@o}
zh {s}{v}了{o}，因为它{a.pred}

?state: o a p
en {p}, {o} was {a}
fr {p}, {o} était {a@o}
de {p} [war] {o} {a}
ru {p} {o} <o|был|была|было> {a.ins@o}
ar <o|كان|كانت> {o} {a.acc@o} {p}
zh {p.bare}的{o}{a.pred}

attribute: s v o a p
en {s} {v.past} the {a} {o.bare} {p}
fr {s} a {v.pp} {o} {a@o} {p}
de {s} [hat] {o.art_acc} {a.acc@o} {o.bare_acc} {p} {v.pp}
ru {s} {v.past@s} {a.acc@o} {o.acc} {p} // {p} {s} {v.past@s} {a.acc@o} {o.acc}
ar {v.past@s} {s} {o} {a.def@o} {p} // {s} {v.past@s} {o} {a.def@o} {p}
zh {s}{p}{v}了{a.attr}{o}

?compare: o a o2
en {o} was {a.comp} than {o2}
fr {o} était plus {a@o} que {o2}
de {o} [war] {a.comp} als {o2}
ru {o} <o|был|была|было> {a.comp}, чем {o2}
ar <o|كان|كانت> {o} {a.comp} من {o2}
zh {o}比{o2}更{a.bare} // {o}比{o2}{a.bare}

quantity: s v q o p
en {s} {v.past} {q} {o.plural} {p}
fr {s} a {v.pp} {q} {o.plural} {p}
de {s} [hat] {p} {q} {o.plural} {v.pp}
ru {s} {v.past@s} {q} {o.count@q} {p} // {p} {s} {v.past@s} {q} {o.count@q}
ar {v.past@s} {s} {q.num@o} {o.count@q} {p}
zh {s}{p}{v}了{q}{o.measure}{o}

?there_were: q o p
en there were {q} {o.plural} {p}
fr il y avait {q} {o.plural} {p}
de {p} [gab] es {q} {o.plural}
ru {p} было {q} {o.count@q}
ar <o|كان|كانت> هناك {q.num@o} {o.count@q} {p}
zh {p.bare}有{q}{o.measure}{o}

?there_was: o a p
en there was {a.indef} {o.bare} {p}
fr il y avait {o.indef} {a@o} {p} // {p}, il y avait {o.indef} {a@o}
de {p} [gab] es {o.indef_art} {a.indef_acc@o} {o.bare_acc}
ru {p} <o|был|была|было> {a.nom@o} {o}
ar <o|كان|كانت> هناك {o.bare} {a@o} {p}
zh {p.bare}有一{o.measure}{a.attr}{o}

?there_was_no: o p t
en there was no {o.bare} {p} {t}
fr il n'y avait pas {o.de} {p} {t}
de {t} [gab] es {p} {o.none}
ru {t} {p} не было {o.gen}
ar لم <o|يكن|تكن> هناك {o.bare} {p} {t}
zh {t}{p.bare}没有{o}

?weather: w p t
en {w} {p} {t} // {t}, {w} {p}
fr {t}, {w} {p} // {w} {p} {t}
de {t} [{w.finite}] {w.middle} {p} {w.end}
ru {t} {p} {w}
ar {w} {p} {t}
zh {t}{p.bare}{w}

stay: s p w
en {s} stayed {p} because {w}
fr {s} <s|est resté|est restée> {p} car {w} // {s} <s|est resté|est restée> {p} parce {w.que}
de {s} [ist] {p} geblieben, weil {w.sub}
ru {s} <s|остался|осталась> {p}, потому что {w}
ar <s|بقي|بقيت> {s} {p} لأن {w.sub}
zh 因为{w}，{s}留{p} // 因为{w}，所以{s}留{p}

?feel: s f t
en {s} was {f} {t} // {t}, {s} was {f}
fr {s} {f@s} {t} // {t}, {s} {f@s}
de {s} [war] {t} {f} // {t} [war] {s} {f}
ru {t} {s} {f@s}
ar <s|كان|كانت> {s} {f@s} {t} // {t} <s|كان|كانت> {s} {f@s}
zh {s}{t}{f}

feel_because: s f r v o
en {s} was {f} because {r} {v.past} {o}
fr {s} {f@s} car {r} avait {v.pp} {o} // {s} {f@s} parce {r.que} avait {v.pp} {o}
de {s} [war] {f}, weil {r} {o.acc} {v.pp} hatte
ru {s} {f@s}, потому что {r} {v.past@r} {o.acc} // {s} {f@s}, так как {r} {v.past@r} {o.acc}
ar <s|كان|كانت> {s} {f@s} لأن {r} {v.past@r} {o}
zh {s}{f}，因为{r}{v}了{o} // 因为{r}{v}了{o}，所以{s}{f}

go: s p t
en {s} went {p.dir} {t} // {t}, {s} went {p.dir}
fr {s} <s|est allé|est allée> {p} {t} // {t}, {s} <s|est allé|est allée> {p}
de {s} [ist] {t} {p.dir} gegangen // {t} [ist] {s} {p.dir} gegangen
ru {t} {s} <s|пошёл|пошла> {p.dir}
ar <s|ذهب|ذهبت> {s} {p.dir} {t}
zh {s}{t}去了{p.noun} // {t}{s}去了{p.noun}

travel: s p t
en {s} travelled {p.dir} {t}
fr {s} <s|est parti|est partie> {p} {t} // {t}, {s} <s|est parti|est partie> {p}
de {s} [ist] {t} {p.dir} gereist // {t} [ist] {s} {p.dir} gereist
ru {t} {s} <s|поехал|поехала> {p.dir}
ar <s|سافر|سافرت> {s} {p.dir} {t}
zh {s}{t}去{p.noun}旅行了

give: s d o r
en {s} {d} {o} to {r}
fr {s} a {d} {o} {r.a}
de {s} [hat] {r.dat} {o.acc} {d}
ru {s} {d@s} {r.dat} {o.acc}
ar {d@s} {s} {o} {r.li}
zh {s}把{o}{d}给了{r}

tell: s d o r
en {s} {d} {o} to {r}
fr {s} a {d} {o} {r.a}
de {s} [hat] {r.dat} {o.acc} {d}
ru {s} {d@s} {r.dat} {o.acc}
ar {d@s} {s} {o} {r.li}
zh {s}给{r}{d}了{o}

together: s r v o p
en {s} {v.past} {o} together with {r} {p}
fr {s} a {v.pp} {o} avec {r} {p}
de {s} [hat] {o.acc} zusammen mit {r.dat} {p} {v.pp}
ru {s} вместе {r.with} {v.past@s} {o.acc} {p}
ar {v.past@s} {s} {o} مع {r} {p}
zh {s}和{r}一起{p}{v}了{o}
"""
