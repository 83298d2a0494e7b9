-- Names that specs have elsewhere, in busted, Jest and pytest: using one is an error that says what to write here.

local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"

local habits = {}

local around = "before_each(f) and after_each(f) run around each spec; what all specs need is made at the top of the file"
local left_out = "a spec that is not to run is put into a comment, --[[ … ]]"
local fakes = "fakes stand for the world outside, as fake.http { … }, which returns the requests that it got"
local block, spec = "describe(\"…\", function() … end) is a block", "it(\"…\", function() … end) is a spec"

local names = {
  setup = around, teardown = around, lazy_setup = around, lazy_teardown = around, strict_setup = around, strict_teardown = around,
  before = around, after = around, before_all = around, after_all = around, beforeAll = around, afterAll = around, beforeEach = around, afterEach = around,
  pending = left_out, xit = left_out, xdescribe = left_out, skip = left_out,
  context = block, insulate = block, expose = block, suite = block, test = spec, spec = spec,
  expect = "assert.equal(expected, got) compares", finally = "local _ <close> = closing(f) runs f when the spec ends",
  spy = fakes, stub = fakes, mock = fakes, jest = fakes,
}

local equal, same, found = "assert.equal(expected, got)", "assert.same(expected, got) compares tables by their contents", "assert.truthy(text:find(pattern))"
local differs, raises, is_there = "assert.truthy(got ~= other)", "assert.error(f, part): f raises an error that contains part", "assert.truthy(got)"
local no_error = "call the function itself: an error fails the spec"
local of_type = "assert.equal(\"table\", type(got)), and math.type(got) for integers"

local assertions = {
  equals = equal, eq = equal, is_equal = equal, are_equal = equal, toBe = equal, same_as = same, is_same = same, are_same = same, deep_equal = same,
  is_true = "assert.equal(true, got), or assert(got)", ["true"] = "assert.equal(true, got), or assert(got)", is_truthy = is_there, ok = is_there,
  is_false = "assert.equal(false, got)", ["false"] = "assert.equal(false, got)", is_falsy = "assert.falsy(got)", none = "assert.is_nil(got)",
  is_not_nil = is_there, not_nil = is_there, not_equal = differs, is_not_equal = differs, are_not_equal = differs, not_same = differs,
  has_error = raises, has_errors = raises, errors = raises, raises = raises, throws = raises, error_matches = raises, has_no_error = no_error,
  has_no_errors = no_error, no_error = no_error, matches = found, match = found, is_match = found, has_match = found,
  near = "assert.truthy(math.abs(a - b) < 0.01)", length = "assert.equal(3, #list)", spy = fakes, stub = fakes,
  is_table = of_type, is_string = of_type, is_number = of_type, is_boolean = of_type, is_function = of_type,
}

-- The first words of busted's chains, as in assert.are.same.
local chained = {}
for _, word in ipairs { "is", "are", "has", "was", "is_not", "are_not", "has_no", "was_not", "does", "does_not", "no", "not" } do chained[word] = true end

--- Adds to `base`, the names of a spec, those that are errors.
function habits.add(base)
  for name, hint in pairs(names) do
    local function refuse() problem.raise(2, "specs have no '" .. name .. "'", hint) end
    base[name] = setmetatable({}, { __metatable = false, __call = refuse, __index = refuse })
  end
end

--- Raises the error about assert.NAME, which is not among the `known` functions. For the __index of `assert`.
function habits.no_assertion(name, known)
  local word = tostring(name)
  local hint = chained[word:lower()] and "without words before it, as in assert.equal(expected, got), .same, .truthy, .is_nil, .error"
    or assertions[word] or assertions[word:lower()] or suggest.listed(word, known, "assertions")
  problem.raise(3, "there is no assert." .. word, hint)
end

return habits
