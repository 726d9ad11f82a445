"""What people write for a licence, and its SPDX identifier.

Keys are in the plain form of `curate.licences`: lower case, words joined by one hyphen, without "the", "license",
"version".
"""

from __future__ import annotations

__all__ = ["ALIASES", "NOTHING", "VAGUE"]

NOTHING = frozenset({"", "-", "none", "null", "nan", "n/a", "na", "unknown", "noassertion", "not-specified",
                     "unspecified", "undefined", "?", "tbd", "[]"})  # fmt: skip
"""Values that say nothing: as good as no value. `other` says something, that it is none of the known ones."""

_BY_ID: dict[str, tuple[str, ...]] = {
    "Apache-2.0": ("apache", "apache2", "apache2.0", "apache-2", "apache-software", "apache-software-2.0", "asl-2.0",
                   "asl2", "asl2.0", "al2", "apache-foundation-2.0", "apache.org/licenses/license-2.0"),
    "MIT": ("mit-mit", "expat", "mit-expat", "mit/expat", "x11/mit", "opensource.org/mit"),
    "BSD-3-Clause": ("bsd", "new-bsd", "modified-bsd", "revised-bsd", "bsd-3", "bsd3", "bsd-3clause", "3-clause-bsd",
                     "bsd-new", "bsd-3-clause-new-or-revised", "bsd-3-clauses"),
    "BSD-2-Clause": ("simplified-bsd", "freebsd", "bsd-2", "bsd2", "bsd-2clause", "2-clause-bsd", "bsd-simplified",
                     "bsd-2-clause-simplified", "bsd-2-clauses"),
    "BSL-1.0": ("boost", "boost-1.0", "boost-software", "boost-software-1.0", "boost.org/license_1_0"),
    "Zlib": ("zlib/libpng", "zlib-libpng"),
    "ISC": ("iscl", "isc-iscl"),
    "Unlicense": ("unlicence", "unlicense.org"),
    "CC0-1.0": ("cc0", "cc-0", "cc-zero", "cc0-1.0-universal", "cc0-1", "creativecommons.org/publicdomain/zero/1.0"),
    "PSF-2.0": ("psf", "psfl", "python-software-foundation"),
    "NCSA": ("university-of-illinois/ncsa-open-source", "llvm-release"),
    "Apache-2.0 WITH LLVM-exception": ("apache-2.0-with-llvm-exceptions", "apache-2.0-with-llvm-exception"),
    "MPL-2.0": ("mozilla-public-2.0", "mpl", "mpl2", "mpl-2", "mozilla.org/mpl/2.0"),
    "GPL-1.0-or-later": ("gpl", "gnu-gpl", "gnu-general-public"),
    "LGPL-2.0-or-later": ("lgpl", "gnu-lgpl", "gnu-lesser-general-public"),
    "AGPL-1.0-or-later": ("agpl", "gnu-agpl", "gnu-affero-general-public"),
    "ODC-By-1.0": ("odc-by",),
    "ODbL-1.0": ("odbl",),
    "PDDL-1.0": ("pddl",),
    "C-UDA-1.0": ("c-uda",),
    **{
        f"{name}-{number}.0-{ending}": tuple(
            f"{spelled}{joint}{n}{suffix}"
            for spelled in spellings
            for joint in ("", "-")
            for n in (f"{number}", f"{number}.0")
            for suffix in suffixes
        )
        for name, spellings, numbers in (
            ("GPL", ("gpl", "gnu-gpl", "gnu-general-public"), (2, 3)),
            ("LGPL", ("lgpl", "gnu-lgpl", "gnu-lesser-general-public"), (3,)),
            ("AGPL", ("agpl", "gnu-agpl", "gnu-affero-general-public"), (3,)),
        )
        for number in numbers
        for ending, suffixes in (("only", ("", "-only")), ("or-later", ("+", "-or-later")))
    },
    **{
        f"CC-{terms.upper()}-{version}": (
            f"creativecommons.org/licenses/{terms}/{version}",
            f"cc{terms}-{version}",
            f"cc-{terms}{version}",
            f"cc-{terms.replace('-', ' ').replace(' ', '-')}-{version}-international",
            f"creative-commons-{words}-{version}",
            f"creative-commons-{words}-{version}-international",
            *((f"cc-{terms}-4", f"creative-commons-{words}-4") if version == "4.0" else ()),
        )
        for terms, words in (
            ("by", "attribution"), ("by-sa", "attribution-sharealike"), ("by-nc", "attribution-noncommercial"),
            ("by-nd", "attribution-noderivatives"), ("by-nc-sa", "attribution-noncommercial-sharealike"),
            ("by-nc-nd", "attribution-noncommercial-noderivatives"),
        )
        for version in ("2.0", "2.5", "3.0", "4.0")
    },
}  # fmt: skip

ALIASES: dict[str, str] = {name: key for key, names in _BY_ID.items() for name in names}
"""Plain form, or address without `https://www.`, -> SPDX."""

VAGUE: dict[str, str] = {
    "bsd": "'BSD' does not say which: taken for BSD-3-Clause",
    **dict.fromkeys(("apache", "apache-software"), "'Apache' without a version: taken for Apache-2.0"),
    "mpl": "'MPL' without a version: taken for MPL-2.0",
    **{
        name: "GNU licence without a version: any version"
        for key in ("GPL-1.0-or-later", "LGPL-2.0-or-later", "AGPL-1.0-or-later")
        for name in _BY_ID[key]
    },
}
"""Plain forms that leave something open, and the note on how they are read."""
