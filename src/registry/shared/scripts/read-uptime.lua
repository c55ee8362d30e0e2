local upMs = tonumber(string.match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)')) * 1000
