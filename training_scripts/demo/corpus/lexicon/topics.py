# ruff: noqa: E501 - one row a concept, in six languages
"""Everyday topics: who does what to which things, where, and in what order.

A topic's first lines hold its titles, people and places; each further line is ``verb: things [: instruments]``, in
the order in which a story tells them.
"""

from __future__ import annotations

TOPICS = """
# kitchen ; A day in the kitchen ; Une journée en cuisine ; Ein Tag in der Küche ; День на кухне ; يوم في المطبخ ; 厨房里的一天
people: cook waitress grandmother baker customer
places: kitchen dining_room terrace
order: meat carrot egg onion
wash: carrot plate cup pot
peel: carrot onion : knife
cut: meat bread onion carrot : knife
mix: dough salad sauce : spoon
bake: bread cake
cook_food: soup meat carrot egg
taste: soup sauce salad cake : spoon
cover: pot
serve: soup meat salad cake
eat: cake bread egg meat
break: plate cup bottle
clean: table pot knife

# market ; A day at the market ; Une journée au marché ; Ein Tag auf dem Markt ; День на рынке ; يوم في السوق ; 市场上的一天
people: saleswoman customer butcher florist grandmother
places: market shop square
deliver: apple orange cheese basket
pack: apple pear orange coin
weigh: apple honey cheese melon fish
cut: cheese meat melon cake : knife
taste: honey cheese melon pear : spoon
choose: melon bouquet hat carpet pear
buy: apple pear cheese honey hat carpet basket
sell: orange carpet bouquet fish egg
pay: bill
fill: basket bottle
carry: basket melon carpet
lose: coin hat key

# school ; A day at school ; Une journée à l'école ; Ein Tag in der Schule ; День в школе ; يوم في المدرسة ; 学校里的一天
people: teacher pupil headmaster student boy
places: classroom schoolyard gym
open: window schoolbag notebook
clean: blackboard table
explain: lesson question poem
write: essay poem question : pencil pen
draw: map : pencil
measure: table map : ruler
read: poem essay book
learn: poem song
correct: essay exam notebook : pen
discuss: exam question essay
lose: pencil notebook ruler schoolbag
return: notebook dictionary

# hospital ; A day in the hospital ; Une journée à l'hôpital ; Ein Tag im Krankenhaus ; День в больнице ; يوم في المستشفى ; 医院里的一天
people: doctor nurse pharmacist patient grandfather
places: hospital waiting_room pharmacy
prepare: bed syringe medicine
check: thermometer microscope list
wash: wound glove blanket
examine: wound : magnifier
change: bandage blanket
write: prescription report : pen
order: medicine bandage glove
bring: medicine blanket water syringe
drink: water milk
pack: medicine glove report
read: report prescription : magnifier
sign: report prescription : pen
close: window door

# football ; The football match ; Le match de football ; Das Fußballspiel ; Футбольный матч ; مباراة كرة القدم ; 足球比赛
people: goalkeeper coach referee fan journalist
places: stadium grandstand changing_room
prepare: match list jersey
wash: jersey shoe
check: ball net list stopwatch
choose: jersey ball shoe
watch: match
throw: ball scarf bottle
block: ball
stop: stopwatch
raise: flag
hear: song
drink: water
lose: whistle shoe scarf
win: match trophy
sing: song
describe: match
clean: shoe trophy

# train ; A journey by train ; Un voyage en train ; Eine Zugreise ; Поездка на поезде ; رحلة بالقطار ; 火车旅行
people: inspector passenger engine_driver tourist journalist
places: station platform train compartment
buy: ticket newspaper sandwich magazine
read: timetable newspaper magazine novel
carry: suitcase backpack
push: suitcase bicycle
open: suitcase door window
check: ticket passport locomotive brake
steer: locomotive
stop: locomotive
eat: sandwich apple orange
drink: water milk
hide: ticket letter
lose: passport ticket umbrella coat
find: umbrella passport suitcase key
close: window door suitcase
clean: carriage window

# farm ; A day on the farm ; Une journée à la ferme ; Ein Tag auf dem Bauernhof ; День на ферме ; يوم في المزرعة ; 农场里的一天
people: farmer vet shepherd neighbour grandfather
places: farm stable meadow barn
open: gate door
fill: bucket bottle basket
feed: horse cow sheep hen dog
examine: cow horse sheep
wash: horse bucket tractor
steer: tractor
repair: tractor fence gate : hammer
dry: hay wheat
carry: hay bucket milk
cover: hay wheat
pack: egg apple
tie: horse cow dog : rope
sell: milk egg sheep wheat
weigh: wheat cheese
close: gate door

# garden ; In the garden ; Au jardin ; Im Garten ; В саду ; في الحديقة ; 在花园里
people: gardener neighbour grandfather aunt boy
places: garden greenhouse shed park
buy: rose bush can shovel
plant: rose lily tree bush pumpkin : shovel
fill: can bucket
water_plant: rose lily lawn flower tree : can
feed: bird cat
trim: lawn bush tree rose
pick: apple pear flower rose
paint: bench fence : brush
repair: fence bench fountain : hammer
clean: fountain bench
photograph: rose bird fountain : camera
weigh: pumpkin
"""
