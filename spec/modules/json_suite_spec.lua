-- JSONTestSuite: 283 texts that a parser must take (y_) or refuse (n_), and 35 that RFC 8259 leaves open (i_), decided
-- here.
local c_json = require("modules").json
local json = c_json.lua
local cjson = require("cjson")
local suite = require("spec.helpers.json_suite")

-- Numbers of any size are valid JSON; how they are represented is the reader's decision. Every other case that the RFC
-- leaves open is refused: bytes that are not UTF-8, byte order marks, lone surrogates, 500 levels.
local open = {}
for name in ([[
  i_number_double_huge_neg_exp i_number_huge_exp i_number_neg_int_huge_exp i_number_pos_double_huge_exp
  i_number_real_neg_overflow i_number_real_pos_overflow i_number_real_underflow i_number_too_big_neg_int
  i_number_too_big_pos_int i_number_very_big_negative_int]]):gmatch("%S+") do
  open[name] = true
end
for name in ([[
  i_object_key_lone_2nd_surrogate i_string_1st_surrogate_but_2nd_missing i_string_1st_valid_surrogate_2nd_invalid
  i_string_UTF-16LE_with_BOM i_string_UTF-8_invalid_sequence i_string_UTF8_surrogate_U+D800
  i_string_incomplete_surrogate_and_escape_valid i_string_incomplete_surrogate_pair
  i_string_incomplete_surrogates_escape_valid i_string_invalid_lonely_surrogate i_string_invalid_surrogate
  i_string_invalid_utf-8 i_string_inverted_surrogates_U+1D11E i_string_iso_latin_1 i_string_lone_second_surrogate
  i_string_lone_utf8_continuation_byte i_string_not_in_unicode_range i_string_overlong_sequence_2_bytes
  i_string_overlong_sequence_6_bytes i_string_overlong_sequence_6_bytes_null i_string_truncated-utf-8
  i_string_utf16BE_no_BOM i_string_utf16LE_no_BOM i_structure_500_nested_arrays
  i_structure_UTF-8_BOM_empty_object]]):gmatch("%S+") do
  open[name] = false
end

describe("JSONTestSuite", function()
  local texts = suite.read()
  if not texts then
    pending("is not here: " .. suite.archive .. " holds it")
    return
  end

  -- Whether scan() accepts a text; members() must agree, except about repeated keys.
  local function verdict(text)
    local result = c_json.scan(text)
    local seen = select(2, c_json.members(text))
    assert(result == seen or (result == "ok" and seen == "repeated"), "looking changes the verdict")
    return result == "ok"
  end

  it("is there whole", function()
    local count = { y = 0, n = 0, i = 0 }
    for name in pairs(texts) do count[name:sub(1, 1)] = count[name:sub(1, 1)] + 1 end
    assert.same({ y = 95, n = 188, i = 35 }, count)
  end)

  it("has every y_ text accepted, and decoded unless a key is repeated", function()
    for name, text in pairs(texts) do
      if name:find("^y_") then
        assert.is_true(verdict(text), name)
        local value, why = json.decode(text)
        if value == nil then
          assert.matches("^repeated key", why, name)
          assert.matches("duplicated_key", name)
        else
          local again = json.encode(value)
          assert.equal(again, json.encode(json.decode(again)), name)
          assert.same(cjson.decode("[" .. text .. "]"), cjson.decode("[" .. again .. "]"), name)
        end
      end
    end
  end)

  it("has every n_ text refused", function()
    for name, text in pairs(texts) do
      if name:find("^n_") then
        assert.is_false(verdict(text), name)
        assert.is_nil((json.decode(text)), name)
      end
    end
  end)

  it("has every i_ text decided", function()
    local decided = {}
    for name, text in pairs(texts) do
      if name:find("^i_") then decided[name] = verdict(text) end
    end
    assert.same(open, decided)
  end)
end)
