local cache = require "cache"

return tool {
  "The square of a number, which takes a while.", read_only = true, input = { n = t.integer },
  function(args)
    local key = "square:" .. args.n
    local found = cache:get(key)
    if found then return found .. ", from the cache" end
    sleep(0.1)
    local square = args.n * args.n
    local stored, why = cache:set(key, square, { ttl = 1 * minutes })
    if not stored then log.warn("not cached", { why = why }) end
    return square .. ", computed"
  end,
}
