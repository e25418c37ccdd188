"""Everyday English words: what goods, titles and lists are called after, so that every token learns to be copied.

None of them is the name of something in the exam (training/exam/goods.py).
"""

from __future__ import annotations

import functools
from pathlib import Path
from random import Random

#: things, mostly; they can be sold, carried, asked about
THINGS = """
anchor ankle antler apron arch arrow ash attic axe badge bagpipe ball balloon bamboo banner barley barn barrel basil
basin basket bat battery bead beam bean bear beard beaver bee beet bell belt bench berry blanket blazer blossom bluebell
board bolt bonnet boot border bottle bow brick brook broom brush bubble bucket buckle bugle bulb bull bunny burrow bush
butter button cabbage cabin cable camel camp canal candy cane cannon canoe canvas cape caravan card carpet cart carving
cashew cat cauliflower cave cedar celery cellar chain chalk chapel charcoal cheddar chess chestnut chick chicory chimney
chisel chive cider cigar cinnamon clam clay cliff cloak cloth clover coal coast cobbler cod coin collar column compass
coral cord corn costume cotton couch coyote crab cradle crane crate crayon creek crescent cress cricket crow
crown crumb crust crystal cube cuckoo curd curry curtain cushion custard daisy date deer desk dice dill dock dog doll
dolphin dome donkey dough dove drain drum duck dumbbell dune dust eagle earring easel egg elbow elm ember engine
envelope falcon fan feather fence fennel ferret fiddle field fig finch finger flag flame flask flint flour flute foam
foil fork fountainhead frame frog frost fruit fudge funnel fur gate gem ghost giraffe glacier glove glue goat goblet
goose gooseberry grain granola grape grapefruit grass gravel gravy grove guava gull hail halibut hammer hammock hamster
handle harp hat hawk hay hazel heart hedge helmet hemp hen herb hill hinge hive hook hoop horn hose icicle iguana ink
iron ivory jacket jade jar jasmine jelly jewel jigsaw joker jug jungle juniper kale keel kelp kernel kiln kite kiwi
knee knight knot koala lace ladder ladle lagoon lake lamb lantern lasso laurel lava lavender leaf leather lemonade lens
lettuce lever lid lilac lily lime linen lion liquorice llama lobster lock locket log loom lotus lynx magnet mallet
mango mantle maple marble marigold marmalade marsh mask mast mat meadow medal mill millet mint mitten mole moose mosaic
moss moth mule mushroom mussel mustard napkin necklace needle nest net nettle nickel noodle nougat nugget nutmeg oak oar
oasis oat ocean octopus olive omelet onion opal orange oregano oven oyster paddle padlock paint palm pan panda panther
paprika parachute parcel parka parsley parsnip pasta paste patch pawn pea peacock peanut pear pearl pebble pecan pedal
pelican pepper perch perfume petal pheasant pier pig pigeon pillow pin pine pipe pistachio pitcher plank plaster
pocket pole pond pony popcorn porcelain porridge portrait pot potion powder prawn prism prune pudding puffin pulley pump
puppet purse quail quartz quilt quince radish raft rail rake ram reed reef ribbon ridge ring robe rope
rosemary rotor ruby rudder rug rye sack saddle sage sail salmon salsa sand sandal sapphire sardine satin sauce sausage
saw scallop scarf scissors screw seal sesame shawl sheep shell shield shirt shoe shovel shutter silk sink skate
sketch skirt sled sleeve slipper sloth snail snake soap sock sofa soil spark sparrow spice spider spinach sponge spoon
spring spruce spur squid squirrel stable staircase stamp statue steak steam stew sting stone stool stork straw stream
stripe sugar swan sweater sword syrup table tadpole tail tambourine tape tarragon teapot tent thimble thistle thorn
thread throne thyme ticket tile timber tin toad toast tofu tongs torch towel trail tray trellis trout trowel trunk
tuna tunnel turban turnip turtle tweed twig umbrella urn valve vase vault veil velvet venison vest vine vinegar wagon
wall waltz wand wasp water wax weasel wheat wheel whisk whistle wick willow wing wire wool worm wren yak yam yarn
yogurt zebra zinc zucchini
""".split()

#: what things are like
LIKE = """
able acid alpine ancient arctic autumn bare best big black blind blond bold bright brisk brown calm cheap chief classic
clean clear coarse cool crazy creamy crisp crunchy curly daily damp dark dear deep dense double dry dull eager
early easy empty even extra faint fair famous fast fat fierce fine firm flat fluffy fond foreign free fresh full funny
fuzzy gentle glad gloomy golden grand green grilled half handy happy hard harsh heavy hidden high hollow homemade hot
huge icy ideal jolly juicy just keen kind late lazy lean light little local long loose loud lovely low loyal lucky
mad magic main mean mellow mighty mild minty misty mixed modern moist narrow neat new nice noble noisy nutty odd
old open oval own pale perfect pink plain polite poor posh pretty prime proper proud pure purple quick quiet rapid
rare raw ready real rich ripe roasted rocky rosy rough round royal rusty sad safe salted same scarlet secret sharp
shiny short shy silent silky silly simple sleepy slim slow smart smoked smooth soft solid sour spare special spicy
stale steady steep sticky stiff still strange strict strong sturdy sudden sweet swift tall tame tender thick thin
tight tiny tired tough tropical true twin urban vague vast vivid warm weak weird wet white whole wide wild wise
wooden worn wrong yellow young zesty
""".split()

#: what is done
DO = """
add ask bake bend bite blow boil borrow bounce break breathe build burn bury carry carve cast catch chase choose clap
climb collect color count crawl cross cry cut dance deliver dig dive divide draw dream drift drop earn enjoy explain
explore fall fasten feed fight fill find fix float fold follow forgive freeze gather glow grab greet grow guard guess
hang harvest hide hold hunt hurry imagine improve invent invite join jump juggle kick knit knock land laugh lead lean
learn leave lift listen march marry measure melt mend mix move multiply obey observe offer paddle paint peel plan plant
play pour practice praise pray prepare press promise pull push race reach read record reply rescue rest return ride
roast rub run sail save scream search sew shake share shine shout sing sink ski sleep slide smell smile sneeze
solve speak spell spend spin split stand steal stir stretch study surf survive swim swing teach tear throw tidy touch
train trap trust turn twist vanish visit vote wake wander wash watch wave whisper win wipe wonder work
write yawn yell
""".split()


#: the letters of the tokenizer's words and of what it continues words with: a token copies well once it has been copied
STARTS, REST = (part.split() for part in Path(__file__).with_name("pieces.txt").read_text().split("\n\n"))


def word(rng: Random) -> str:
    """Any of them; things most often."""
    kind = rng.random()
    return rng.choice(THINGS if kind < 0.45 else STARTS if kind < 0.82 else LIKE if kind < 0.92 else DO)


def pieced(rng: Random) -> str:
    """A word's beginning and up to two pieces after it, as the tokenizer may cut."""
    return rng.choice(STARTS) + "".join(rng.choice(REST) for _ in range(rng.choice((0, 1, 1, 2))))


@functools.lru_cache(None)
def _long() -> list[str]:
    return [each for each in THINGS + LIKE + DO if len(each) > 4]


def spliced(rng: Random) -> str:
    """The beginning of one word and the end of another: pieces that are common, in a row that is not."""
    first, second = rng.choice(_long()), rng.choice(_long())
    return first[: rng.randint(2, len(first) - 1)] + second[rng.randint(1, len(second) - 2) :]
