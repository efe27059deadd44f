"""English words for prompts: keys such as calm-harbor, and up to 44,732 different words for a list.

Lists from Python packages would have to be installed; these are short and part of this project.
"""

from functools import lru_cache

ADJECTIVE_LIST = """
able amber ample aware basic bold brave brief bright broad calm cheap clean clear clever close cold common cool
crisp curly daily damp dark dear deep dense direct dry eager early easy empty equal exact extra faint fair famous
fast fine firm flat fond fresh full gentle glad golden good grand grave great green happy hard heavy hidden high
honest huge humble idle jolly keen kind large late lazy light little local lone long loud loyal lucky major merry
mild minor modern modest narrow near neat new nice noble odd old open pale plain polite proud pure quick quiet
rapid rare ready real red rich rough round royal rural safe sharp short shy silent silver simple slim slow small
smart smooth soft solid square steady steep stiff strong sudden sunny super sweet swift tall tame thick thin tidy
tiny tough true urban vast vivid warm weak wet white wide wild wise witty yellow young zealous
"""
ADJECTIVES = tuple(ADJECTIVE_LIST.split())
NOUN_LIST = """
acorn actor alarm album angle ankle apple arrow artist badge bakery banana barrel basket beach beacon bean bench
berry bird blanket boat bottle branch bread brick bridge bucket button cabin cable camera candle canoe canyon
carpet castle cattle cedar cellar chair chalk cherry circle cliff cloud clover coast coffee comet copper coral
corner cotton cousin cradle crane crystal curtain dancer desert diamond doctor dolphin donkey dragon drawer eagle
engine falcon farmer feather fence ferry field finger flag flower forest fountain fox galaxy garden garlic gate
ginger glacier glove goose grape guitar hammer harbor harvest hazel helmet hill honey horse hotel island ivory
jacket jewel kettle kitchen ladder lagoon lake lamp lantern lemon letter library lizard magnet maple marble market
meadow melon mirror monkey moon mountain needle nest novel oasis ocean olive onion orange orchard otter owl paddle
palace panda paper parrot pearl pebble pencil pepper piano pillow pilot planet pocket poem pond prairie pumpkin
puzzle rabbit rainbow raven ribbon river rocket saddle salad salmon school shadow shelter shovel signal singer
sister spider spoon spring squirrel stable station statue stone storm street sugar summer sunset table tailor
teacher temple thunder ticket tiger timber tower train treasure tulip tunnel turtle valley velvet village violin
wagon walnut water whale wheel willow window winter wizard zebra
"""
NOUNS = tuple(NOUN_LIST.split())


@lru_cache(1)
def single_words() -> tuple[str, ...]:
    """Return the nouns and adjectives that are not part of another one, so that an answer names one or the other."""
    words = (*NOUNS, *ADJECTIVES)
    return tuple(word for word in words if not any(word in other for other in words if other != word))


@lru_cache(1)
def compounds() -> tuple[str, ...]:
    """Return compounds of two different nouns."""
    return tuple(first + second for first in NOUNS for second in NOUNS if first != second)


def list_words(count: int) -> tuple[str, ...]:
    """Return at least `count` different words: single words if they are enough, else compounds."""
    return single_words() if count <= len(single_words()) else compounds()
