-- Characters by which a text can say something else to a model than it shows to a person: those that nothing shows,
-- those that turn the direction of a text, and letters that look like others.

local characters = {}

-- -- characters that are not seen --------------------------------------------------------------------------------------

-- First and last of each range, in order.
local HIDDEN <const> = {
  0x00, 0x08, 0x0B, 0x0C, 0x0E, 0x1F, 0x7F, 0x9F, 0xAD, 0xAD, 0x34F, 0x34F, 0x61C, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180F,
  0x200B, 0x200F, 0x2028, 0x202E, 0x2060, 0x206F, 0x2800, 0x2800, 0x3164, 0x3164, 0xFE00, 0xFE0F, 0xFEFF, 0xFEFF, 0xFFA0, 0xFFA0, 0xFFF0, 0xFFFB,
  0x13430, 0x1345F, 0x1BCA0, 0x1BCA3, 0x1D159, 0x1D159, 0x1D173, 0x1D17A, 0xE0000, 0xE0FFF, 0xF0000, 0x10FFFF,
}

local function is_in(ranges, code)
  local low, high = 1, #ranges // 2
  while low <= high do
    local middle = (low + high) // 2
    if code < ranges[2 * middle - 1] then
      high = middle - 1
    elseif code > ranges[2 * middle] then
      low = middle + 1
    else
      return true
    end
  end
  return false
end

local ZWNJ <const>, ZWJ <const>, TEXT_FORM <const>, EMOJI_FORM <const>, KEYCAP <const> = 0x200C, 0x200D, 0xFE0E, 0xFE0F, 0x20E3
local BLACK_FLAG <const>, TAG_END <const> = 0x1F3F4, 0xE007F

-- Symbols that emoji begin with: a form (U+FE0F) or a joined emoji may follow.
local EMOJI <const> = {
  0xA9, 0xA9, 0xAE, 0xAE, 0x203C, 0x203C, 0x2049, 0x2049, 0x2122, 0x2122, 0x2139, 0x2139, 0x2194, 0x21AA, 0x231A, 0x23FF, 0x24C2, 0x24C2,
  0x25AA, 0x27BF, 0x2934, 0x2935, 0x2B05, 0x2B55, 0x3030, 0x3030, 0x303D, 0x303D, 0x3297, 0x3299, 0x1F000, 0x1FAFF,
}
local function is_emoji(code) return code ~= nil and is_in(EMOJI, code) end

-- Scripts that write with joiners: Arabic and those of India, Myanmar, Khmer and Mongolian.
local JOINED <const> = {
  0x600, 0x6FF, 0x710, 0x7FF, 0x8A0, 0x8FF, 0x900, 0xDFF, 0x1000, 0x109F, 0x1780, 0x17FF, 0x1800, 0x18AF, 0xFB50, 0xFDFF, 0xFE70, 0xFEFE,
}
local function is_joined(code) return code ~= nil and is_in(JOINED, code) and not is_in(HIDDEN, code) end

-- The three flags that are written with tag characters: England, Scotland and Wales.
local FLAGS <const> = { gbeng = true, gbsct = true, gbwls = true }

-- The number of characters of the flag whose tags begin at `i`; nil if it is none.
local function flag_at(codes, i)
  local letters = {}
  for k = i, i + 5 do
    local code = codes[k]
    if code == TAG_END then return FLAGS[table.concat(letters)] and #letters + 1 or nil end
    if code == nil or code < 0xE0061 or code > 0xE007A then return nil end
    letters[#letters + 1] = string.char(code - 0xE0000)
  end
end

-- True if the hidden character `i` is part of a visible one: the form or the joint of an emoji, or a joiner between
-- letters that join.
local function belongs(codes, i)
  local code, before, after = codes[i], codes[i - 1], codes[i + 1]
  if code == EMOJI_FORM or code == TEXT_FORM then
    if is_emoji(before) then return true end
    local is_key = before ~= nil and (before >= 0x30 and before <= 0x39 or before == 0x23 or before == 0x2A)
    return is_key and code == EMOJI_FORM and after == KEYCAP
  end
  if code == ZWJ then
    if before == EMOJI_FORM then before = codes[i - 2] end
    if is_emoji(before) and is_emoji(after) then return true end
  end
  return (code == ZWJ or code == ZWNJ) and is_joined(before) and is_joined(after)
end

-- The code points of a text.
local function codes_of(text)
  local codes, n = {}, 0
  for _, code in utf8.codes(text, true) do
    n = n + 1
    codes[n] = code
  end
  return codes
end

--- The first character of a text that is not seen or that turns the direction of text, as "U+200B"; nil if there is
--- none. Line ends and tabs are seen.
function characters.hidden(text)
  if not text:find "[\0-\8\11\12\14-\31\127-\255]" then return nil end
  if not utf8.len(text) then return "a byte that is no UTF-8" end
  local codes, i = codes_of(text), 1
  while codes[i] do
    local code = codes[i]
    if is_in(HIDDEN, code) then
      local flag = codes[i - 1] == BLACK_FLAG and flag_at(codes, i)
      if flag then
        i = i + flag - 1
      elseif not belongs(codes, i) then
        return ("U+%04X"):format(code)
      end
    end
    i = i + 1
  end
end

--- The text with each character that is not seen, or that could change a terminal, as "<U+200B>".
function characters.shown(text)
  if not text:find "[\0-\31\127-\255]" then return text end
  if not utf8.len(text) then return (text:gsub("[\0-\31\127-\255]", function(c) return ("<%02X>"):format(c:byte()) end)) end
  local made = {}
  for _, code in utf8.codes(text) do
    made[#made + 1] = (code < 0x20 or code == 0xA0 or is_in(HIDDEN, code)) and ("<U+%04X>"):format(code) or utf8.char(code)
  end
  return table.concat(made)
end

--- A text of JSON with an escape for each hidden character, which in JSON are only in strings.
function characters.escaped(text)
  if not text:find "[\127-\255]" or not utf8.len(text) then return text end
  return (text:gsub(utf8.charpattern, function(c)
    local code = utf8.codepoint(c)
    if code < 0x7F or not is_in(HIDDEN, code) then return nil end
    if code < 0x10000 then return ("\\u%04x"):format(code) end
    return ("\\u%04x\\u%04x"):format(0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF))
  end))
end

-- -- letters that look like others ---------------------------------------------------------------------------------------

-- The Latin letters, in lower case, that these letters of Cyrillic, Greek, Armenian, Cherokee and Lisu look like.
local like = {}
local function looks(latin, others)
  for _, code in utf8.codes(others) do like[code] = latin end
end
looks("a", "аАαΑᎪꓮɑ") looks("b", "ВвΒβᏴꓐЬь") looks("c", "сСϲϹᏟꓚⅽ") looks("d", "ԁᎠꓓժ") looks("e", "еЕΕεᎬꓰҽ") looks("f", "ϜꓝϝՔ") looks("g", "ԌɡցᏀꓖ")
looks("h", "һНΗᎻꓧհн") looks("i", "іІιΙӏᎥւⅰı") looks("j", "јЈᎫꓙϳ") looks("k", "кКκΚᏦꓗ") looks("l", "ⅼᏞꓡӀǀ") looks("m", "мМΜᎷꓟ") looks("n", "ΝꓠոηпП")
looks("o", "оОοΟօՕσꓳ") looks("p", "рРρΡᏢꓑ") looks("q", "ԛզգ") looks("r", "гᎡꓣᖇ") looks("s", "ѕЅᏚꓢՏ") looks("t", "тТτΤᎢꓔ") looks("u", "υսՍꓴц")
looks("v", "νѵѴᏙꓦ") looks("w", "ԝᎳꓪωѡ") looks("x", "хХχΧꓫ") looks("y", "уУүΥγꓬҮ") looks("z", "ΖᏃꓜ")

-- The plain letter of a letter in full width, or of a mathematical alphabet; nil for others.
local function plain_letter(code)
  if code >= 0xFF10 and code <= 0xFF19 or code >= 0xFF21 and code <= 0xFF3A or code >= 0xFF41 and code <= 0xFF5A then
    return string.char(code - 0xFEE0):lower()
  end
  if code >= 0x1D400 and code <= 0x1D6A3 then return string.char((code - 0x1D400) % 26 + 97) end
  if code >= 0x1D7CE and code <= 0x1D7FF then return string.char((code - 0x1D7CE) % 10 + 48) end
  if code >= 0x24B6 and code <= 0x24E9 then return string.char((code - 0x24B6) % 26 + 97) end
  if code >= 0x1F130 and code <= 0x1F149 then return string.char(code - 0x1F130 + 97) end
end

--- How a name looks: names that a person could take for each other have one look. It ignores case, and the differences
--- between O and 0, and between I, l and 1.
function characters.look(name)
  local look = name:lower()
  if look:find "[\128-\255]" and utf8.len(look) then
    local made = {}
    for _, code in utf8.codes(look) do made[#made + 1] = like[code] or plain_letter(code) or utf8.char(code) end
    look = table.concat(made)
  end
  return (look:gsub("[0l1]", { ["0"] = "o", l = "i", ["1"] = "i" }))
end

-- True for the first character of a script that writes words in letters which Latin letters resemble.
local function is_foreign(code) return like[code] ~= nil and code > 0x2FF or code >= 0x370 and code <= 0x58F end

--- The first letter that imitates a Latin one, as "U+0430": a letter of another script in a word with Latin letters, or
--- a letter of a mathematical or full-width alphabet beside plain ones. nil if there is none.
function characters.imitation(name)
  if not name:find "[\128-\255]" or not utf8.len(name) then return nil end
  local has_latin, found = false, nil
  for _, code in utf8.codes(name) do
    local is_latin = code >= 0x41 and code <= 0x5A or code >= 0x61 and code <= 0x7A or code >= 0xC0 and code <= 0x24F
    local copies = plain_letter(code) ~= nil or (like[code] ~= nil and is_foreign(code))
    if is_latin then
      has_latin = true
    elseif copies then
      found = found or code
    elseif code < 0x80 then                      -- an ASCII character that is no letter ends the word
      if has_latin and found then break end
      has_latin, found = false, nil
    end
  end
  if has_latin and found then return ("U+%04X"):format(found) end
end

return characters
