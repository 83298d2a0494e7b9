--- Fails on purpose.
return function() return nil, "This tool intentionally returns an error for testing" end
