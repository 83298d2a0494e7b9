-- The members of the libraries of scripts, and the methods of what they return, for hints about names that do not exist.
-- Nothing is looked up here unless Lua has raised an error.

local suggest = require "moonpool.runtime.suggest"

local members = {}

local libraries, objects = {}, {}

--- Notes the members of the library `name`: a table by name.
function members.of_library(name, functions) libraries[name] = functions end

--- Notes the methods of an object, a table by name, and returns it.
function members.of_object(methods)
  objects[methods] = true
  return methods
end

--- A hint about `name`, which the library `library` does not have; nil if no name is near enough.
function members.hint(library, name) return libraries[library] and suggest.hint(name, libraries[library]) end

--- A hint about `name`, which is a method of no object; nil if no name is near enough.
function members.method_hint(name)
  local all = {}
  for methods in next, objects do
    for method in next, methods do all[method] = true end
  end
  return suggest.hint(name, all)
end

return members
