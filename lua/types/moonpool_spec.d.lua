---@meta
-- What a *_spec.lua beside the scripts sees besides the names of scripts, for editors (LuaLS). Nothing here runs.
error("moonpool_spec.d.lua holds types for editors: specs have these names without requiring anything")

--- A situation.
---@param name string
---@param body fun()
function describe(name, body) end

--- What holds in it.
---@param name string
---@param body fun()
function it(name, body) end

--- Runs before each `it` of this `describe`.
---@param body fun()
function before_each(body) end

--- Runs after each `it` of this `describe`, also after one that failed.
---@param body fun()
function after_each(body) end

---@class moonpool.spec.Result
---@field text string          Its texts, a line each
---@field structured? any      What a table became
---@field content table[]

--- Calls a tool as a client does, its schema and all. Nil and why, as the model reads it, when it fails.
---@param name string
---@param arguments? table
---@return moonpool.spec.Result? result
---@return string? why
function call(name, arguments) end

--- Reads a resource. Nil and why when there is none.
---@param uri string
---@return { text: string?, contents: table[] }? result
---@return string? why
function read(uri) end

--- The messages of a prompt. Nil and why when it fails.
---@param name string
---@param arguments? table<string, string>
---@return table[]? messages
---@return string? why
function get_prompt(name, arguments) end

--- What a spec puts in the place of the world, until its end.
---@class moonpool.lib.fake
fake = {}

--- Answers by "METHOD url", or url: a text, a status, a table, or a function that gives one, or nil and why. Whatever is not
--- there fails. Gives the list of the requests from now on: method, url, headers, body.
---@param answers table<string, string|integer|{ status: integer?, headers: table?, body: string?, json: any }|fun(request: table): any, string?>
---@return table[] asked
function fake.http(answers) end

--- It is this time, in seconds since 1970; sleep moves it on and takes none.
---@param seconds number
function fake.time(seconds) end

--- What the user answers, by key: a table for call:elicit (false declines), a text for call:sample, a list for call:roots.
---@param answers table<string, any>
function fake.answers(answers) end

---@class moonpool.spec.Assert
---@overload fun<T>(value?: T, why?: any, ...: any): T, ...
---@field equal fun(expected: any, got: any, message?: string)
---@field same fun(expected: any, got: any, message?: string)        By contents
---@field truthy fun(got: any, message?: string)
---@field falsy fun(got: any, message?: string)
---@field is_nil fun(got: any, message?: string)
---@field contains fun(part: string, text: string, message?: string) Letter by letter
---@field error fun(body: fun(), part?: string)

---@type moonpool.spec.Assert
assert = nil
