-- Of all gateways together: a client does not get more by using another one.
return { visits = limit { tools = { "visit" }, rate = 600, per = 1 * minutes } }
