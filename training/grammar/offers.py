"""What desks of all kinds are asked for, by trade: the thing itself is copied from the guest's words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from training.grammar import values, words
from training.grammar.text import number, plural


@dataclass(frozen=True)
class Trade:
    """``form``: visit (one appointment), hire and ticket (counted), course (places on it), room (nights), table."""

    house: str  # a pattern
    form: str
    things: tuple[str, ...]  # what is asked for there
    kinds: tuple[str, ...] = ()  # what may stand before it
    whom: tuple[str, ...] = ()  # who or what it is for, besides people


def _split(text: str) -> tuple[str, ...]:
    return tuple(" ".join(each.split()) for each in text.split("|"))


PEOPLE = _split("""son|daughter|wife|husband|mother|father|grandmother|grandfather|sister|brother|uncle|aunt|nephew|
    niece|cousin|grandson|granddaughter|mum|dad|partner|boss|neighbor|friend|mum|dad|little girl|little boy|twins|
        baby""")
GROUPS = _split("""class|team|family|choir|band|group|office|club|friends|kids|colleagues|students|school|crew|
    children|neighbors|orchestra|scouts|company|daughter|son|parents|wife|husband""")
PETS = _split("""dog|cat|puppy|kitten|rabbit|parrot|terrier|poodle|hamster|spaniel|beagle|collie|sheepdog|pony|tortoise|
    guinea pig|budgie|retriever|dachshund|old dog|big cat""")
RIDES = _split("""car|van|motorbike|truck|jeep|camper|scooter|company car|pickup|convertible|old car|minibus|bike|
    tractor|trailer|estate car|moped""")

TRADES = {
    "hair": Trade("hair salon|barber shop|hairdresser|barber", "visit", _split("""haircut|trim|beard trim|cut|shave|
        perm|
        wash and cut|cut and blow dry|blow dry|dry cut|hair wash|highlights|color|fringe trim|clean shave|
        hot towel shave|
        wedding hairstyle|children's cut|hair treatment|color and cut"""), (), PEOPLE),
    "nails": Trade("nail bar|nail studio|beauty salon|spa|wellness desk", "visit", _split("""manicure|pedicure|
        facial|massage|back massage|foot bath|gel nails|nail repair|hot stone massage|polish change|brow shaping|waxing|
        eyelash tint|manicure and pedicure|peeling|steam bath|mud bath|sauna hour"""), (), PEOPLE),
    "optics": Trade("optician|eye clinic|hearing center", "visit", _split("""eye test|fitting|lens check|hearing test|
        contact lens fitting|frame repair|eye exam|vision test|hearing aid check|glasses adjustment"""), (), PEOPLE),
    "doctor": Trade("doctor's office|clinic|health center|dentist|dental office|vaccination desk", "visit", _split("""
        check-up|vaccination|flu shot|travel shot|blood test|blood pressure check|cleaning|filling|skin check|x-ray|
        consultation|booster shot|tetanus shot|allergy test|tooth cleaning|dental check|baby check|knee exam|
        bandage change|ear rinse"""), (), PEOPLE),
    "pets": Trade("vet|animal clinic|dog salon|pet groomer", "visit", _split("""trim|bath|vaccination|check-up|
        claw clip|
        nail trim|fur cut|bath and brush|teeth cleaning|worming|flea treatment|chip|ear cleaning|wash and dry|grooming|
        clip"""), (), PETS),
    "garage": Trade("garage|car wash|tire shop|workshop|service station|bike workshop", "visit", _split("""oil change|
        tire change|inspection|car wash|wax wash|brake check|interior cleaning|service|battery test|full wash|polish|
        hand wash|wheel alignment|chain repair|light check|brake repair|puncture repair|gear check|winter tires|
        windscreen repair|engine check|new tires|gears|spokes|new pedals|mudguards|lights"""), (), RIDES),
    "photo": Trade("photo studio|photographer|print shop|passport desk", "visit", _split("""passport photo|portrait|
        family portrait|photo session|wedding shoot|baby photo|application photo|group photo|visa photo|film scan|
        studio hour|school photo"""), (), PEOPLE),
    "tailor": Trade("tailor|dress shop|shoemaker|jeweler|costume shop", "visit", _split("""fitting|alteration|hemming|
        dress fitting|suit fitting|ring fitting|measurement|heel repair|sole repair|zip repair|watch repair|bra fitting|
        engraving|shoe fitting"""), (), PEOPLE),
    "lessons": Trade("music school|driving school|language school|riding school|ski school|dance school", "visit",
        _split("""piano lesson|guitar lesson|driving lesson|swimming lesson|singing lesson|riding lesson|ski lesson|
        trial lesson|French lesson|drum lesson|theory lesson|math lesson|placement test|cello lesson|dance lesson|
        chess lesson|sailing lesson|violin lesson"""), (), PEOPLE),
    "office": Trade("town hall|bank|tax office|service desk|city office|job center", "visit", _split("""appointment|
        passport appointment|consultation|meeting|interview|registration|loan talk|tax consultation|viewing|
        account opening|parcel pickup|collection|bulk pickup|delivery|furniture collection|parcel collection|visit|
        key handover|document pickup"""), (), PEOPLE),
    "bikes": Trade("bike rental|bicycle rental|bike shop|rental desk|ski rental", "hire", _split("""bike|bicycle|tandem|
        scooter|helmet|trailer|cargo bike|sledge|pair of skis|snowboard|rollator|stroller|pair of skates|
        child seat"""), _split("""mountain|city|road|electric|folding|children's|ladies'|touring|racing|big|small|
        gravel|trekking|cargo|men's"""), GROUPS),
    "boats": Trade("boat rental|harbor office|boathouse|water sports desk", "hire", _split("""boat|canoe|kayak|
        pedal boat|
        rowing boat|sailing boat|surfboard|paddle board|raft|dinghy|motor boat|life jacket|
        wetsuit"""), _split("""single|
        double|small|large|three-seat|open|electric|river|racing|wooden|family"""), GROUPS),
    "sports": Trade("sports center|sports hall|bowling alley|tennis club|swim hall|leisure center", "hire", _split("""
        tennis court|squash court|badminton court|bowling lane|swimming lane|lane|court|pool table|football pitch|
        table tennis table|climbing wall|half court|practice net|volleyball field|sauna|dart board|minigolf lane"""),
        _split("indoor|outdoor|clay|grass|hard|double|single|big|small|center|corner|children's"), GROUPS),
    "rooms": Trade("community center|library|town library|event house|youth center|music house|office center", "hire",
        _split("""room|hall|study room|meeting room|practice room|party room|conference room|music room|seminar room|
        kitchen|locker|workshop room|parking space|reading room|studio|garden|desk|quiet room|projector|piano|
        chat room|changing room|storage box|game room|ballroom|dance floor|workplace|phone booth"""), _split("""small|
        big|
        large|quiet|upper|bright|blue|green|corner|heated|covered|second|private|little|main"""), GROUPS),
    "courses": Trade("adult school|gym|fitness studio|yoga studio|course desk|community college|dance studio", "course",
        _split("yoga|pilates|spin|pottery|painting|cooking|baking|swimming|salsa|first aid|sewing|photo|drawing|zumba|"
               "boxing|tango|knitting|writing|chess|judo|aqua fitness|climbing|Spanish|Italian|guitar|barista|wine|"
               "sushi|bread|beginners yoga|beginners Spanish|advanced pilates|back fitness|parent and child|"
               "watercolor|ceramics|meditation|self-defense|ballet|carving|gardening"),
        _split("class|course|workshop|lesson|training|evening|session|tasting|weekend"), GROUPS),
    "tours": Trade("tour desk|tourist office|visitor center|castle office|museum desk", "visit", _split("""guided tour|
        city tour|castle tour|night walk|harbor tour|audio tour|cellar tour|school tour|wine tour|boat trip|tower visit|
        group visit|museum tour|factory tour|brewery tour|children's tour|garden tour|cave tour|bus tour|zoo tour"""),
        _split("guided|short|long|evening|morning|private|English|family|first|last")),
    "cinema": Trade("cinema|movie theater|film house|theater|concert hall|box office|planetarium|circus desk", "ticket",
        _split("ticket|seat|ticket|seat|place|pass"), _split("""matinee|balcony|box|front row|back row|student|child|
        adult|senior|gallery|standing|evening|family|premium|reduced|stalls|couch|children's|group|3D|last row""")),
    "train": Trade("train station|ticket office|station|coach desk|ferry desk|bus station|rail desk", "ticket",
        _split("ticket|single|return|ticket|seat|day ticket|single ticket|return ticket|day return|fare|group ticket"),
        _split("""first class|second class|child|student|adult|window|senior|aisle|flexible|cheap|off-peak|sleeper|
        reduced|weekend|open""")),
    "media": Trade("library|bookshop|toy library|media desk|school library|video store", "hold", _split("""novel|book|
        DVD|
        audiobook|magazine|comic|board game|picture book|cookbook|travel guide|biography|CD|record|film|poetry book|
        textbook|thriller|crime novel|puzzle|video game|play|map|songbook|e-book|children's book""")),
    "parcels": Trade("post office|parcel shop|dry cleaner|pickup desk|pharmacy|print shop|lost property office", "hold",
        _split("""parcel|package|order|prescription|delivery|shipment|letter|suitcase|print job|photo order|repair|
        medicine|box|shirts|jacket|item|order number|parcel number|ticket number|claim number""")),
    "hotel": Trade("hotel|guest house|inn|hostel|motel|mountain hut|bed and breakfast", "room", _split("""room|room|
        room|
        room|suite|apartment|bed|cabin|tent pitch|bungalow|studio|dormitory bed|chalet|pitch"""), _split("""single|
        double|
        twin|family|triple|quiet|large|small|standard|deluxe|superior|budget|corner|sea view|garden|four-bed|attic|
        non-smoking|ground floor|king|balcony""")),
    "table": Trade("restaurant|bistro|grill|trattoria|tea room|steak house|beer garden", "table", _split("table|table|"
        "table|table|booth|tasting menu|afternoon tea|brunch|Sunday lunch|dinner|lunch|breakfast|fondue evening|"
        "birthday dinner|cream tea|business lunch|wine tasting|high tea|barbecue|buffet|supper|family dinner|"
        "wedding meal|farewell dinner|tapas evening|dinner|dinner|dinner|"
        "lunch|lunch|supper|anniversary dinner|team lunch|drinks|coffee and cake|"
        "birthday party|family reunion|quick bite|sushi|tapas|celebration|romantic dinner|garden party|Sunday roast|"
        "late supper|early dinner|farewell breakfast|christmas dinner|set menu"), _split("""terrace|window|corner|
        garden|quiet|round|outdoor|indoor|high|big|large|balcony|long|small|shady|sunny|non-smoking|fireside|
        rooftop""")),
}  # fmt: skip
#: wishes, by form; said with the joint, repeated with it
WISHES = {
    "room": _split("""with breakfast|with breakfast|with a balcony|with a sea view|without breakfast|with half board|
        with parking|with a baby cot|with an extra bed|on the ground floor|with a bathtub|on a high floor|
        facing the garden|away from the street|with dinner|with a desk|with late check-out"""),
    "table": _split("""with a high chair|by the window|on the terrace|in the garden|outside|inside|in a quiet corner|
        near the fire|with two high chairs|in the shade|by the sea|away from the door|with space for a stroller|
        with a candle|near the play corner|with a view|upstairs|with a booster seat|with a birthday cake"""),
    "ticket": _split("""back row|front row|in the middle|aisle seats|front stalls|by the aisle|in the back|upstairs|
        with a table|side by side|not too close|in the balcony|close to the exit|last row|together|first row|in the box|
        on the left|on the right|near the stage|rear stalls|upper circle|center seats"""),
    "train": _split("""window seats|aisle seats|with a table|side by side|with a bike|quiet coach|facing forward|
        with seat reservation|with luggage|second class|first class|one way|by the window|with a dog|on deck|
        with bicycles|family compartment|upper berth|with a car"""),
    "hire": _split("""with a child seat|with helmets|with a lock|with a basket|with life jackets|with lights|
        with a projector|with chairs|with rackets|with balls|with a window|with insurance|with shoes|doubles|singles|
        with a screen|with heating|with paddles|without a driver|near the entrance"""),
    "visit": _split("""with the owner|with an interpreter|with a woman|in English|in Spanish|with the same person|
        in the small room|with the boss|with the new colleague|without waiting"""),
    "hold": _split("""in large print|in English|as a gift|gift-wrapped|in French|wrapped|in paperback|in hardcover|
        in a bag|at the side entrance|with a receipt|used|in German"""),
    "course": _split("""with materials|in English|for beginners|with lunch|with rental mats|with an apron|
        in the front row|for advanced"""),
}  # fmt: skip
PURPOSES = _split("""a birthday party|a wedding|a meeting|a rehearsal|badminton|basketball|tennis|a concert|
    a christening|
    dancing|a seminar|a farewell|fishing|an anniversary|a reunion|training|a tournament|a photo shoot|yoga practice|
    a book club|a committee meeting|homework|choir practice|a children's party|a band|an exam|volleyball|a picnic""")
_PASSENGERS = _split("adult|child|senior|student|teacher|pensioner|pupil|grown-up|visitor|passenger|dog|bike|car|"
                     "camper|motorbike|trailer")  # fmt: skip
CROWDS = _split("""ladies|children|adults|pupils|students|kids|seniors|men|girls|boys|grown-ups|teachers|colleagues|
    families|players|visitors|hikers|dancers|nurses|teenagers""")
_SERVICES = """
treatment lesson session check test fitting service cleaning repair wash massage consultation workshop photo therapy
tasting appointment training inspection cut shoot visit measurement polish scan
""".split()
#: bare: no article stands before it
_BARE = re.compile(r"[^s]s$|(?:hemming|waxing|worming|grooming|engraving|peeling|opening|yoga|pilates)$")
_GEAR = "bike boat room hall court lane board tent locker cabin cart table machine pitch studio box desk field".split()
_STARS = "first|quick|full|short|long|deluxe|basic|express|yearly|small|big|complete|classic|gentle|second".split("|")


def children(n: int, noun: str) -> str:
    """The noun in the number that the count wants: court, courts, children."""
    return noun if n == 1 else "children" if noun == "child" else plural(noun)


def with_article(thing: str) -> str:
    """a trim, an eye test, highlights"""
    return thing if _BARE.search(thing) else ("an " if thing[0] in "aeioAEIO" else "a ") + thing


def passengers(rng: Random, vehicles: bool = False) -> tuple[str, str]:
    """two adults and three children: (as said, as repeated)."""
    nouns = rng.sample(_PASSENGERS[:2] if rng.random() < 0.4 else _PASSENGERS if vehicles else _PASSENGERS[:9], 2)
    counts = [rng.choice((1, 1, 2, 2, 3, 4, 5, 6)) for _ in nouns]
    digits = rng.random() < 0.35
    said = " and ".join(f"{n if digits else number(n)} {children(n, noun)}" for n, noun in zip(counts, nouns))
    return said, " and ".join(f"{number(n)} {children(n, noun)}" for n, noun in zip(counts, nouns))


def thing(rng: Random, split: str, trade: Trade) -> tuple[str, str]:
    """(what stands before, the thing): ("mountain", "bike"); a third is invented."""
    invented = rng.random() < 0.35 and trade.form != "hold"
    if trade.form == "course":
        topic = rng.choice(trade.things) if not invented else values.pick(rng, split, lambda: _word(rng))
        return topic, rng.choice(trade.kinds)
    head = rng.choice(trade.things)
    if not invented:
        if not trade.kinds:
            return (rng.choice(_STARS) if trade.form == "visit" and rng.random() < 0.15 else ""), head
        kind = rng.choice(trade.kinds) if trade.kinds and rng.random() < 0.6 else ""
        return ("" if kind and (kind.split()[-1] in head or " " in head) else kind), head
    if trade.form in ("visit", "hire") and rng.random() < 0.7:
        head = rng.choice(_SERVICES if trade.form == "visit" else _GEAR)
    return values.pick(rng, split, lambda: _word(rng)), head.split()[-1] if trade.form == "hire" else head


def crowd(rng: Random, form: str) -> str:
    """Of what kind those are for whom it is."""
    weights = {"hire": (60, 5, 5, 30), "table": (68, 15, 11, 6)}.get(form, (70, 18, 12, 0))
    return rng.choices(("number", "crowd", "passengers", "purpose"), weights)[0]


def wish(rng: Random, kind: str, told: list[str]) -> str:
    """A wish at a desk, none of those told; a third is for something that nobody listed."""
    if rng.random() < 0.33:
        noun = words.word(rng) if rng.random() < 0.3 else rng.choice(words.THINGS)
        joint = rng.choice(("with {a}", "with {a}", "with {a}", "without {n}", "near the {n}", "by the {n}",
        "next to the {n}",
                            "with two {n}s", "in the {n}", "beside the {n}", "with {b}"))  # fmt: skip
        kind_of = f"{rng.choice(words.LIKE)} {noun}"
        return joint.format(n=noun, a=with_article(noun), b=with_article(kind_of))
    ours = WISHES.get(kind) or WISHES[TRADES[kind].form]
    return rng.choice([each for each in ours if each not in told])


def _word(rng: Random) -> str:
    return values.coined(rng) if rng.random() < 0.4 else words.word(rng)
