local shop = require "shop"

return tool {
  "The latest orders.", read_only = true, input = { most = t.integer { min = 1, max = 100, default = 10 } },
  function(args) return { orders = try(shop:query("select * from orders order by id desc limit $1", { args.most })) } end,
}
