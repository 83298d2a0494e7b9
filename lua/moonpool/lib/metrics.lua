-- The library `metrics` of scripts: counters, gauges and histograms of their own in /metrics, declared while scripts
-- load. All workers add to the same numbers, which go on over reloads.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local members = require "moonpool.runtime.members"
local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"

local metrics = {}

local MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_VALUE_BYTES = 60, 256, 128
local MAX_LABELS, MAX_BOUNDS = 4, 19
local DEFAULT_MOST, MAX_MOST = 100, 1000

local form = "as in metrics.counter { \"orders_sold\", \"Orders sold\", labels = { \"region\" }, most = 100 }"
local seconds = { 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60 }
local options = { counter = { 1, 2, "labels", "most" }, gauge = { 1, 2, "labels", "most" }, histogram = { 1, 2, "buckets", "labels", "most" } }
local endings = { "_total", "_sum", "_count", "_bucket", "_created", "_info" }

--- A function(name, value, labels) that takes the numbers in the place of /metrics, for specs; nil if there is none.
metrics.stand_in = nil

-- The metrics that the scripts of this Lua state have declared: their forms by name, and the number of series that they
-- may have together.
local forms, series_declared = {}, 0

-- -- declaring ---------------------------------------------------------------------------------------------------------

local function check_name(name)
  if type(name) ~= "string" or not name:find "^%l[%l%d_]*$" or #name > MAX_NAME_BYTES then
    problem.raise(2, "a metric needs a name of a-z, 0-9 and _, of at most " .. MAX_NAME_BYTES .. " bytes", form)
  end
  for _, ending in ipairs(endings) do
    if name:sub(-#ending) == ending then
      problem.raise(2, ("the name of a metric may not end in %s: '%s'"):format(ending, name), "/metrics adds such endings where a kind of metric has them")
    end
  end
  return "app_" .. name:gsub("^app_", "")
end

local function check_text(text)
  if type(text) ~= "string" or #text == 0 or #text > MAX_TEXT_BYTES or text:find "[%c\\]" or not utf8.len(text) then
    problem.raise(2, "a metric needs a description of one line and at most " .. MAX_TEXT_BYTES .. " bytes, without \\", form)
  end
  return text
end

local function check_labels(given)
  local labels, seen = copied(given == nil and {} or given), {}
  if type(labels) ~= "table" or #labels > MAX_LABELS then problem.raise(2, "'labels' must be a list of at most " .. MAX_LABELS .. " names", form) end
  for i in next, labels do
    if math.type(i) ~= "integer" or i < 1 or i > #labels then problem.raise(2, "'labels' must be a list of names", form) end
  end
  for _, name in ipairs(labels) do
    if type(name) ~= "string" or not name:find "^%l[%l%d_]*$" or #name > MAX_NAME_BYTES or name == "le" or seen[name] then
      problem.raise(2, "'labels' has an item that is no name of a label", "names have a-z, 0-9 and _, each is there once, and none is le")
    end
    seen[name] = true
  end
  return labels
end

local function is_finite(number) return type(number) == "number" and number - number == 0 end

local function check_buckets(given)
  local bounds = copied(given == nil and seconds or given)
  if type(bounds) ~= "table" or #bounds < 1 or #bounds > MAX_BOUNDS then problem.raise(2, "'buckets' must be a list of 1 to " .. MAX_BOUNDS .. " numbers") end
  for i, bound in ipairs(bounds) do
    if not is_finite(bound) or i > 1 and bound <= bounds[i - 1] then
      problem.raise(2, "'buckets' must be numbers, each above the one before it", "as in buckets = { 1, 10, 100 }")
    end
  end
  return bounds
end

local function check_most(most)
  if most == nil then return DEFAULT_MOST end
  if math.type(most) ~= "integer" or most < 1 or most > MAX_MOST then
    problem.raise(2, "'most' must be a whole number from 1 to " .. MAX_MOST, "it limits how many sets of labels the metric has; all further ones are _other")
  end
  return most
end

-- Adds a metric to those of this Lua state. Two scripts may declare the same one.
local function reserve(name, shape, series)
  if forms[name] == shape then return end
  if forms[name] then
    problem.raise(2, ("the metric '%s' is declared in two forms"):format(name), "scripts that share a metric declare it alike, or require one module that does")
  end
  if series_declared + series > host.metrics.limit then
    local what = "the metrics of all scripts may have %d series together: '%s' with %d more is over that"
    problem.raise(2, what:format(host.metrics.limit, name, series),
      "give metrics a smaller 'most', or fewer labels")
  end
  forms[name], series_declared = shape, series_declared + series
end

local function shape_of(kind, labels, most, bounds)
  local parts = { kind, tostring(most), table.concat(labels, ",") }
  for _, bound in ipairs(bounds or {}) do parts[#parts + 1] = ("%a"):format(bound) end
  return table.concat(parts, " ")
end

-- -- counting ----------------------------------------------------------------------------------------------------------

-- The values of the labels, in the order in which the labels were declared.
local function values_of(names, given)
  if given == nil and #names == 0 then return {} end
  if type(given) ~= "table" then
    problem.raise(2, #names == 0 and "this metric has no labels" or "this metric needs its labels: " .. table.concat(names, ", "),
      "as in sold:add(1, { region = \"eu\" })")
  end
  local values, count = {}, 0
  for i, name in ipairs(names) do
    local value = rawget(given, name)
    local kind = type(value)
    if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
      problem.raise(2, ("the label '%s' must be a string, a number or a boolean, got a %s"):format(name, kind))
    end
    values[i] = tostring(value)
  end
  for _ in next, given do count = count + 1 end
  if count > #names then
    problem.raise(2, #names == 0 and "this metric has no labels" or "this metric has no other labels than " .. table.concat(names, ", "),
      "labels are declared with the metric: labels = { … }")
  end
  return values
end

-- The number of the series with these values. The state remembers it for as many sets of values as the metric may have.
local function series_of(self, values)
  local key = #values == 0 and "" or table.concat(values, "\0")
  local series = self.known[key]
  if series then return series end
  series = host.metrics.member(self.family, values, self.most)
  if self.known_count < self.most and #key <= MAX_LABELS * MAX_VALUE_BYTES then
    self.known[key], self.known_count = series, self.known_count + 1
  end
  return series
end

local function enter(self, value, labels, is_set)
  if not is_finite(value) then
    problem.raise(2, "a metric takes a number, got " .. (type(value) == "number" and tostring(value) or "a " .. type(value)), "as in sold:add(1)")
  end
  if self.kind == "counter" and value < 0 then
    problem.raise(2, "a counter only rises, got " .. tostring(value), "metrics.gauge makes a metric that may fall")
  end
  local values = values_of(self.labels, labels)
  if metrics.stand_in then return metrics.stand_in(self.name, value, copied(labels or {})) end
  host.metrics.enter(self.family, series_of(self, values), value, is_set)
end

local methods = {
  counter = function(self)
    return { add = function(_, value, labels) enter(self, value == nil and 1 or value, labels, false) end }
  end,
  gauge = function(self)
    return {
      set = function(_, value, labels) enter(self, value, labels, true) end,
      add = function(_, value, labels) enter(self, value == nil and 1 or value, labels, false) end,
    }
  end,
  histogram = function(self)
    return { observe = function(_, value, labels) enter(self, value, labels, false) end }
  end,
}

members.of_object { add = true, set = true, observe = true }

local function declare(kind, given)
  local spec = copied(given)
  if type(spec) ~= "table" then problem.raise(2, "metrics." .. kind .. " needs a table, got a " .. type(given), form) end
  local stranger, hint = suggest.stranger(spec, options[kind])
  if stranger then problem.raise(2, ("metrics.%s has no option '%s'"):format(kind, stranger), hint) end
  local name, text, labels, most = check_name(spec[1]), check_text(spec[2]), check_labels(spec.labels), check_most(spec.most)
  local bounds = kind == "histogram" and check_buckets(spec.buckets) or nil
  reserve(name, shape_of(kind, labels, most, bounds), #labels == 0 and 1 or most)
  local family, why, remedy = host.metrics.declare(kind, name, text, labels, bounds)
  if not family then problem.raise(2, why, remedy) end
  local self = { name = name, kind = kind, family = family, labels = labels, most = most, known = {}, known_count = 0 }
  return setmetatable({}, { __index = methods[kind](self), __metatable = false, __name = "metrics." .. kind,
    __newindex = function() error("cannot change a metric", 2) end })
end

--- The library of one script file.
function metrics.library()
  local library = {}
  for kind in pairs(methods) do
    library[kind] = function(spec) return (declare(kind, spec)) end
  end
  return library
end

return metrics
