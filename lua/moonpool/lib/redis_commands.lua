-- The commands of Redis: the names that spans and metrics may show, and the commands that scripts may not send on a
-- connection that all tasks share, with what to do instead.

local commands = {}

local names <const> = [[
  ACL APPEND BGREWRITEAOF BGSAVE BITCOUNT BITFIELD BITFIELD_RO BITOP BITPOS CLIENT CLUSTER COMMAND CONFIG COPY DBSIZE DECR DECRBY DEL DUMP ECHO EVAL
  EVALSHA EVALSHA_RO EVAL_RO EXISTS EXPIRE EXPIREAT EXPIRETIME FCALL FCALL_RO FLUSHALL FLUSHDB FUNCTION GEOADD GEODIST GEOHASH GEOPOS GEORADIUS
  GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH GEOSEARCHSTORE GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HEXISTS HEXPIRE HGET
  HGETALL HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HPERSIST HPEXPIRE HPTTL HRANDFIELD HSCAN HSET HSETNX HSTRLEN HTTL HVALS INCR INCRBY
  INCRBYFLOAT INFO KEYS LASTSAVE LATENCY LCS LINDEX LINSERT LLEN LMOVE LMPOP LOLWUT LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM MEMORY MGET
  MIGRATE MODULE MOVE MSET MSETNX OBJECT PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD PFCOUNT PFMERGE PING PSETEX PTTL PUBLISH PUBSUB RANDOMKEY
  RENAME RENAMENX RESTORE ROLE RPOP RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN SCARD SCRIPT SDIFF SDIFFSTORE SET SETBIT SETEX SETNX SETRANGE SINTER
  SINTERCARD SINTERSTORE SISMEMBER SLOWLOG SMEMBERS SMISMEMBER SMOVE SORT SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN STRLEN SUBSTR SUNION
  SUNIONSTORE SWAPDB TIME TOUCH TTL TYPE UNLINK XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE
  XSETID XTRIM ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE
  ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE
  ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE
]]

local known = {}
for name in names:gmatch "%S+" do known[name] = true end

-- Why a command is refused, and what to use instead.
local blocking <const> = "it would hold up the commands of all other tasks; poll with the form that does not block (%s) and sleep between"
local login <const> = "the connection belongs to all tasks: 'user', 'password' and the database of the URL are given to redis.open"
local answers <const> = "it changes how the server answers all tasks of the connection"
local queueing <const> = "other tasks send their commands between yours: use cache:transaction { … }, which sends all at once"
local following <const> = "a connection that follows channels takes no other commands"
local feeding <const> = "it turns the connection into a stream that has no end"
local refused <const> = {
  BLPOP = blocking:format "LPOP", BRPOP = blocking:format "RPOP", BLMOVE = blocking:format "LMOVE", BRPOPLPUSH = blocking:format "LMOVE",
  BLMPOP = blocking:format "LMPOP", BZPOPMIN = blocking:format "ZPOPMIN", BZPOPMAX = blocking:format "ZPOPMAX", BZMPOP = blocking:format "ZMPOP",
  WAIT = "it would hold up the commands of all other tasks until replicas answer; INFO replication shows how far they are",
  WAITAOF = "it would hold up the commands of all other tasks until the disk answers",
  SUBSCRIBE = following, PSUBSCRIBE = following, SSUBSCRIBE = following,
  UNSUBSCRIBE = following, PUNSUBSCRIBE = following, SUNSUBSCRIBE = following,
  MONITOR = feeding, SYNC = feeding, PSYNC = feeding, REPLCONF = feeding,
  AUTH = login, SELECT = login, HELLO = login, RESET = login, QUIT = "the connection belongs to all tasks; it closes when no script uses it",
  MULTI = queueing, EXEC = queueing, DISCARD = queueing,
  WATCH = "other tasks send their commands between yours: compare and set in one step with cache:eval(script, keys, args)",
  UNWATCH = "there is nothing to unwatch: WATCH is refused as well",
  READONLY = answers, READWRITE = answers, ASKING = answers,
  DEBUG = "it can stop the server", SHUTDOWN = "it stops the server for everyone",
}
local refused_client <const> = { REPLY = true, TRACKING = true, CACHING = true, SETNAME = true, SETINFO = true, ["NO-EVICT"] = true, ["NO-TOUCH"] = true }

-- True if XREAD or XREADGROUP waits for entries: BLOCK is an option before STREAMS, from which on all are keys and ids.
local function has_block(words)
  for i = 2, #words do
    local word = words[i]:upper()
    if word == "STREAMS" then return false end
    if word == "BLOCK" then return true end
  end
  return false
end

--- The name of a command for spans and metrics: "_other" for one that Redis 7 does not have.
function commands.shown(name)
  name = name:upper()
  return known[name] and name or "_other"
end

--- Why a command, a list of texts, is refused: nil if it is not.
function commands.refusal(words)
  local name = words[1]:upper()
  if refused[name] then return refused[name] end
  local second = words[2] and words[2]:upper()
  if name == "CLIENT" and refused_client[second] then return answers end
  if name == "SCRIPT" and second == "DEBUG" then return answers end
  if (name == "XREAD" or name == "XREADGROUP") and has_block(words) then return blocking:format(name .. " without BLOCK") end
end

return commands
