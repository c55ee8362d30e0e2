-- Removes a machine from the list. KEYS[8]: the machines. ARGV: the machine.
return {redis.call('HDEL', KEYS[8], ARGV[1]) == 1 and 'forgotten' or 'unknown'}
