-- All methods: name -> function(call, params, era), which returns a result in the base revision, or nil and an error. A
-- third value selects the conversion of the result: true for a result that is in the call's revision already, or the
-- date of the revision to convert it to.

local methods = {}

for _, part in ipairs { "lifecycle", "logging", "tools", "resources", "prompts", "completion", "subscriptions", "tasks" } do
  for name, run in pairs(require("moonpool.methods." .. part)) do methods[name] = run end
end

return methods
