"""The reference of the documentation site, made from what the code says of itself.

Every page is made from a registry, a module or an app; none of it is written by hand. Whatever has
nothing to say of itself is an error, here and in the build of the site.
"""

from reference.pages import pages
from reference.subjects import Subjects
from reference.undocumented import Undocumented

__all__ = ["Subjects", "Undocumented", "pages"]
