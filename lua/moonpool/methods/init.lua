-- Every method we answer: name -> function(call, params, era), giving a result in the newest revision, or nil and an error.
-- A third value: true, the result is told in the era's own words already; or the date of the era to tell it in.

local methods = {}

for _, part in ipairs { "lifecycle", "logging", "tools", "resources", "prompts", "completion", "subscriptions", "tasks" } do
  for name, run in pairs(require("moonpool.methods." .. part)) do methods[name] = run end
end

return methods
