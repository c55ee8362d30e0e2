-- ARGV: ms in which connected machines notice, ms in which all connect after a start of Redis.
--#include read-uptime.lua
local settle = string.format('%.0f',
  nowMs + math.max(tonumber(ARGV[1]), tonumber(ARGV[2]) - upMs))
