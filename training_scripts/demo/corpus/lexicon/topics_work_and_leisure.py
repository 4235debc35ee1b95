# ruff: noqa: E501 - one row a concept, in six languages
"""Topics of work and leisure; the format is that of ``topics``."""

from __future__ import annotations

TOPICS = """
# library ; In the library ; À la bibliothèque ; In der Bibliothek ; В библиотеке ; في المكتبة ; 在图书馆里
people: librarian writer researcher reader student
places: library reading_room archive
open: book catalogue window
read: novel letter manuscript magazine : magnifier
borrow: book novel encyclopedia dictionary
pack: book magazine catalogue
copy: letter manuscript document
examine: manuscript map : magnifier
write: novel letter report : pen computer
describe: manuscript map
correct: manuscript catalogue : pencil
publish: novel catalogue letter
return: book dictionary magazine
hide: manuscript key letter lamp
clean: shelf table

# garage ; At the car workshop ; Au garage ; In der Autowerkstatt ; В автомастерской ; في ورشة السيارات ; 在汽车修理厂
people: mechanic apprentice taxi_driver owner engineer
places: workshop petrol_station car_park yard
push: car motorcycle
examine: engine truck wheel : torch
order: tyre battery mirror
remove: wheel battery mirror : screwdriver
repair: engine brake motorcycle pump : screwdriver hammer
change: tyre battery brake
grease: engine wheel brake
fill: bottle bucket
wash: car truck window
paint: car door motorcycle : brush
test: brake engine car battery
steer: car truck
write: bill list
pay: bill
sell: car motorcycle bicycle

# concert ; The concert ; Le concert ; Das Konzert ; Концерт ; الحفل الموسيقي ; 音乐会
people: violinist pianist singer conductor fan
places: concert_hall stage studio
compose: song symphony melody
learn: melody song
copy: score programme
tune: violin piano guitar
test: microphone piano
correct: score programme : pencil
bring: guitar drum trumpet flute
push: piano
sing: song melody
record: song symphony melody : microphone
hear: symphony melody trumpet
describe: song symphony
buy: ticket programme guitar
lose: ticket flute score

# townhall ; In the town hall ; À la mairie ; Im Rathaus ; В мэрии ; في دار البلدية ; 在市政厅
people: mayor secretary accountant journalist engineer
places: town_hall office meeting_room
open: letter door
read: petition letter report contract
write: speech letter report : computer pen
fill_in: form
prepare: contract budget speech
check: budget bill document : computer
copy: document form
present: budget project plan law
discuss: law project petition plan
approve: budget plan law project
reject: petition project law plan
sign: contract law document : pen
send: letter document petition
publish: law report speech

# sea ; A day at sea ; Une journée en mer ; Ein Tag auf See ; День на море ; يوم في البحر ; 海上的一天
people: captain fisherman sailor diver tourist
places: harbour deck island cabin
check: map compass net telescope
raise: sail flag
tie: boat ship : rope
push: boat
steer: boat : compass
light: lantern
throw: net rope
catch: fish crab : net
measure: fish : ruler
hear: bird
notice: lighthouse ship bird
mark: lighthouse : pencil
repair: net sail boat : rope
dry: net sail rope
sell: fish crab
cook_food: fish soup
clean: boat lantern

# mountain ; A hike in the mountains ; Une randonnée en montagne ; Eine Bergwanderung ; Поход в горы ; رحلة في الجبال ; 登山之行
people: guide climber photographer hiker tourist
places: hut valley forest
choose: path map rope
fill: backpack bottle
check: rope compass torch
carry: backpack tent telescope
cross: river bridge
notice: cave bird mountain
climb: rock mountain : rope
photograph: mountain river bird cave : camera
mark: path mountain
describe: path cave river
set_up: tent
light: fire lantern
cook_food: soup egg
dry: tent shoe coat
lose: compass glove torch

# museum ; A visit to the museum ; Une visite au musée ; Ein Besuch im Museum ; Посещение музея ; زيارة إلى المتحف ; 参观博物馆
people: guard painter visitor collector photographer
places: museum gallery entrance
prepare: exhibition catalogue
buy: ticket catalogue painting
open: door catalogue
hang: painting drawing mask mirror
examine: coin sword mask painting : magnifier
describe: statue painting crown
photograph: statue painting vase sword : camera
draw: statue vase crown : pencil brush
present: painting drawing exhibition
notice: crown sword statue
measure: frame statue : ruler
break: vase mirror mask
repair: vase frame mask
hide: crown coin
close: door window
clean: statue sword frame

# building ; On the building site ; Sur le chantier ; Auf der Baustelle ; На стройке ; في موقع البناء ; 在工地上
people: architect bricklayer electrician carpenter engineer
places: building_site cellar yard office
draw: plan house bridge : ruler pencil
present: plan project
order: brick concrete window crane
deliver: brick beam cable concrete
measure: wall floor window : ruler
mix: concrete : shovel
build: wall house bridge roof
cut: cable : knife
carry: brick beam ladder
set_up: ladder crane
check: cable roof crane wall
repair: roof floor drill : hammer
paint: wall door window : brush
clean: floor window
test: crane drill cable
lose: helmet hammer key
"""
