-- Reads /metrics of a gateway as samples: "name{labels}" -> value.
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local scrape = {}

--- The text of one scrape; `accept`: the formats that the request names.
function scrape.text(g, accept)
  local response = client.request(g, { method = "GET", path = "/metrics", headers = { accept = accept } }, { admin = true })
  assert(response.status == 200, "the status is " .. tostring(response.status))
  return response.body
end

--- The samples of one scrape.
function scrape.samples(g)
  local samples = {}
  for line in scrape.text(g):gmatch "[^\n]+" do
    local name, value = line:match "^([^#%s].*) (%-?[%d.e+-]+)$"
    if name then samples[name] = tonumber(value) end
  end
  return samples
end

--- Waits until each sample of `wanted` has its value, and returns all samples: a text may be a second old.
function scrape.wait(g, wanted)
  local samples
  local function missing()
    local list = {}
    for name, value in pairs(wanted) do
      if samples[name] ~= value then list[#list + 1] = ("%s to be %s, not %s"):format(name, value, samples[name]) end
    end
    return list
  end
  wait.for_fact(function() return table.concat(missing(), "\n") end, 20, function()
    samples = scrape.samples(g)
    return #missing() == 0
  end)
  return samples
end

return scrape
