-- Bodies of handlers that once ended the gateway, blocked a worker for ever, or took memory without bound. Each must
-- end as a call of its own: with a result, an error or a refusal.
local worst = {}

worst.scripts = {
  chain_of_closing = [==[
    local last
    for _ = 1, 30000 do
      local before = last
      last = coroutine.create(function()
        local c <close> = closing(function() if before then coroutine.close(before) end end)
        coroutine.yield()
      end)
      coroutine.resume(last)
    end
    coroutine.close(last)]==],
  deep_decode = [==[
    local cjson = require "cjson"
    pcall(cjson.decode_max_depth, 1e8)
    return tostring(pcall(cjson.decode, ("["):rep(900000)))]==],
  deep_encode = [==[
    local cjson = require "cjson"
    pcall(cjson.encode_max_depth, 1e8)
    local t = {}
    for _ = 1, 400000 do t = { t } end
    return tostring(pcall(cjson.encode, t))]==],
  shared_encode = [==[
    local t = {}
    for _ = 1, 40 do t = { t, t } end
    return tostring(pcall(require "cjson".encode, t))]==],
  endless_closer = [==[
    local co = coroutine.create(function()
      local c <close> = closing(function() while true do end end)
      coroutine.yield()
    end)
    coroutine.resume(co)
    coroutine.close(co)]==],
  endless_closer_of_wrap = [==[
    coroutine.wrap(function()
      local c <close> = closing(function() while true do end end)
      error "fails"
    end)()]==],
  endless_message_handler = [==[xpcall(error, function() while true do end end)]==],
  endless_tostring = [==[error(setmetatable({}, { __tostring = function() while true do end end }))]==],
  weak_keys = [==[
    local ok, t = pcall(setmetatable, {}, { __mode = "k" })
    t = ok and t or {}
    local keys = {}
    for i = 1, 10000 do keys[i] = {} end
    for i = 1, 10000 do t[keys[i]] = keys[(i * 7919) % 10000 + 1] end
    for _ = 1, 200 do local made = ("x"):rep(100000) .. #keys end]==],
  sorted_texts = [==[
    local t = {}
    for i = 1, 20000 do t[i] = ("x"):rep(2000) .. (i * 7919 % 20000) end
    table.sort(t)]==],
  ordered_encode = [==[
    local order, t = {}, {}
    for i = 1, 50000 do order[i] = "k" .. i t["k" .. (50001 - i)] = i end
    return #json.encode(setmetatable(t, { __order = order }))]==],
  lookahead = [==[
    local r = try(regex.new "^(?:(?=[^x]*+x)|a)*c")
    return tostring(r:test(("a"):rep(4000000)))]==],
  long_date = [==[return #os.date(("%"):rep(7000000))]==],
  long_load = [==[return tostring(load(("x=1 "):rep(1500000)))]==],
  memory_database = [==[
    local db = try(sqlite.open ":memory:")
    try(db:execute "create table t (b)")
    while true do try(db:execute("insert into t values (zeroblob(1000000))")) end]==],
  many_parameters = [==[
    local db = try(sqlite.open ":memory:")
    local big, list = ("x"):rep(16000000), {}
    for i = 1, 900 do list[i] = big end
    try(db:query("select 1 where ? is null" .. (" or ? is null"):rep(899), table.unpack(list)))]==],
  native_code = [==[
    local db = try(sqlite.open ":memory:")
    return tostring(db:query "select fts3_tokenizer('simple')")]==],
}

--- Makes a tool for each body, and `ok`, which answers at once.
function worst.tools()
  local scripts = { ["tools/ok.lua"] = "return tool { 'T.', function() return 'ok' end }" }
  for name, body in pairs(worst.scripts) do
    scripts["tools/" .. name .. ".lua"] = "return tool { 'T.', function()\n" .. body .. "\nend }"
  end
  return scripts
end

--- The names of the bodies, sorted.
function worst.names()
  local names = {}
  for name in pairs(worst.scripts) do names[#names + 1] = name end
  table.sort(names)
  return names
end

return worst
