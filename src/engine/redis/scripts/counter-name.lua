-- The identity and the duration of a counter, as in its key and in messages to members.
local digits = format('%d', durationMs)
local identity = keyPrefix:sub(-33 - #digits, -2 - #digits)
