-- Arithmetic by recursive descent: evaluate(text) returns a number, or fails with an error text.

local arithmetic = {}

local functions = {
  sqrt = math.sqrt, abs = math.abs, floor = math.floor, ceil = math.ceil, min = math.min, max = math.max,
  round = function(x) return math.floor(x + 0.5) end,
}

local sum

local function skip(s, at) return s:match("^%s*()", at) end

-- A number, a name, a name with arguments, or a sum in parentheses.
local function atom(s, at, depth)
  if depth > 50 then fail "the expression is nested too deeply" end
  at = skip(s, at)
  local digits, after = s:match("^(%d*%.?%d*)()", at)
  if digits:find "%d" then
    local exponent, past = s:match("^([eE][+-]?%d+)()", after)
    return tonumber(digits .. (exponent or "")), past or after
  end
  if s:sub(at, at) == "(" then
    local value, close = sum(s, at + 1, depth + 1)
    close = skip(s, close)
    if s:sub(close, close) ~= ")" then fail("expected ')' at column " .. close) end
    return value, close + 1
  end
  local name, past = s:match("^(%a+)()", at)
  if name == "pi" then return math.pi, past end
  if not functions[name] then fail("expected a number at column " .. at) end
  past = skip(s, past)
  if s:sub(past, past) ~= "(" then fail("expected '(' at column " .. past) end
  local values = {}
  repeat
    values[#values + 1], past = sum(s, past + 1, depth + 1)
    past = skip(s, past)
  until s:sub(past, past) ~= ","
  if s:sub(past, past) ~= ")" then fail("expected ')' at column " .. past) end
  return functions[name](table.unpack(values)), past + 1
end

-- A power: `^` is right-associative and binds tighter than a sign before it, so -2^2 is -4.
local function power(s, at, depth)
  local base, after = atom(s, at, depth)
  local past = s:match("^%s*%^()", after)
  if not past then return base, after end
  local sign = s:match("^%s*%-()", past)
  local exponent, close = power(s, sign or past, depth + 1)
  return base ^ (sign and -exponent or exponent), close
end

local function signed(s, at, depth)
  local sign, after = s:match("^%s*([+-])()", at)
  if not sign then return power(s, at, depth) end
  local value, past = signed(s, after, depth + 1)
  return sign == "-" and -value or value, past
end

local function product(s, at, depth)
  local value, after = signed(s, at, depth)
  while true do
    local operator, past = s:match("^%s*([*/%%])()", after)
    if not operator then return value, after end
    local right
    right, after = signed(s, past, depth)
    if operator == "*" then
      value = value * right
    elseif right == 0 then
      fail "division by zero"
    else
      value = operator == "/" and value / right or operator == "%" and value % right
    end
  end
end

function sum(s, at, depth)
  local value, after = product(s, at, depth)
  while true do
    local operator, past = s:match("^%s*([+-])()", after)
    if not operator then return value, after end
    local right
    right, after = product(s, past, depth)
    value = operator == "+" and value + right or value - right
  end
end

function arithmetic.evaluate(text)
  local value, after = sum(text, 1, 0)
  after = skip(text, after)
  if after <= #text then fail("expected an operator at column " .. after) end
  return value
end

return arithmetic
