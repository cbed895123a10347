"""A map of the libraries around JAX: who stands on what, each name a link to its own pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version

STYLE = """\
<style>
.seejax-map { display: grid; gap: .4rem; margin: 1rem 0; }
.seejax-map p { display: grid; grid-template-columns: 5rem 1fr; align-items: baseline; margin: 0; }
.seejax-map code { border: 0; background: none; color: inherit; }
.seejax-map span { display: flex; flex-wrap: wrap; gap: .4rem; }
.seejax-map a { padding: .2rem .6rem; border: 1px dashed currentColor; border-radius: .4rem;
  color: inherit; text-decoration: none; }
.seejax-map a.here { border-style: solid; border-width: 2px; }
.seejax-map a:hover, .seejax-map a:focus-visible { text-decoration: underline; }
</style>"""


@dataclass(frozen=True)
class Library:
    """A library: its name, its official pages, and the distribution that has it, if one is known.

    Raises:
      ValueError: the link is not an https address.
    """

    name: str
    link: str
    distribution: str = ""

    def __post_init__(self) -> None:
        if not self.link.startswith("https://"):
            raise ValueError(f"the link of {self.name} should begin with https://, got {self.link}")

    @property
    def version(self) -> str | None:
        """The installed version, or None where the distribution is not installed.

        >>> Library("?", "https://example.org", "no-such-library").version is None
        True
        """
        try:
            return version(self.distribution) if self.distribution else None
        except PackageNotFoundError:
            return None


@dataclass(frozen=True, repr=False)
class Map:
    """Rows of libraries, from what you write down to what runs it.

    Args:
      rows: the label of each row, with its libraries; a label is a word of code, in no language.

    >>> print(Map({"nn": (Library("A", "https://a.org"), Library("B", "https://b.org"))}))
    nn      A, B
    """

    rows: Mapping[str, tuple[Library, ...]]

    @property
    def libraries(self) -> tuple[Library, ...]:
        """All libraries, row by row."""
        return tuple(library for row in self.rows.values() for library in row)

    def __str__(self) -> str:
        named = {label: ", ".join(map(_named, row)) for label, row in self.rows.items()}
        return "\n".join(f"{label:8}{names}" for label, names in named.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = (
            f"<p><code>{escape(label)}</code><span>{''.join(map(_linked, row))}</span></p>"
            for label, row in self.rows.items()
        )
        return f'{STYLE}<div class="seejax-map">{"".join(rows)}</div>'


def _named(library: Library) -> str:
    return f"{library.name} {library.version}" if library.version else library.name


def _linked(library: Library) -> str:
    here = ' class="here"' if library.version else ""
    return f'<a href="{escape(library.link)}"{here}>{escape(_named(library))}</a>'


_KIDGER = "https://docs.kidger.site"

MAP = Map(
    {
        "models": (
            Library("MaxText", "https://maxtext.readthedocs.io/", "maxtext"),
            Library("Tunix", "https://github.com/google/tunix", "google-tunix"),
        ),
        "science": (
            Library("NumPyro", "https://num.pyro.ai/", "numpyro"),
            Library("BlackJAX", "https://blackjax-devs.github.io/blackjax/", "blackjax"),
            Library("Diffrax", f"{_KIDGER}/diffrax/", "diffrax"),
            Library("MJX", "https://mujoco.readthedocs.io/en/stable/mjx.html", "mujoco-mjx"),
        ),
        "nn": (
            Library("Flax NNX", "https://flax.readthedocs.io/", "flax"),
            Library("Flax Linen", "https://flax-linen.readthedocs.io/", "flax"),
            Library("Equinox", f"{_KIDGER}/equinox/", "equinox"),
            Library("Keras", "https://keras.io/", "keras"),
            Library("Haiku", "https://dm-haiku.readthedocs.io/", "dm-haiku"),
        ),
        "optim": (
            Library("Optax", "https://optax.readthedocs.io/", "optax"),
            Library("Optimistix", f"{_KIDGER}/optimistix/", "optimistix"),
        ),
        "data": (
            Library("Grain", "https://google-grain.readthedocs.io/", "grain"),
            Library("TFDS", "https://www.tensorflow.org/datasets", "tensorflow-datasets"),
        ),
        "save": (Library("Orbax", "https://orbax.readthedocs.io/", "orbax-checkpoint"),),
        "check": (
            Library("Treescope", "https://treescope.readthedocs.io/", "treescope"),
            Library("Chex", "https://chex.readthedocs.io/", "chex"),
            Library("jaxtyping", f"{_KIDGER}/jaxtyping/", "jaxtyping"),
        ),
        "jax": (
            Library("JAX", "https://docs.jax.dev/", "jax"),
            Library("Pallas", "https://docs.jax.dev/en/latest/pallas/index.html", "jax"),
        ),
        "xla": (Library("XLA (jaxlib)", "https://openxla.org/xla", "jaxlib"),),
    }
)
"""The libraries that the page `ecosystem` names; solid and with a version where installed."""
