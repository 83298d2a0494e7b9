-- Metatables of weak tables, for modules that are loaded after scripts have begun to load: in their code the name of
-- the field has no meaning any more (core/lib/trust.c). This module is loaded before.

return { keys = { __mode = "k" }, values = { __mode = "v" } }
