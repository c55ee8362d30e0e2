-- Stores the clock and what belongs to it.
call('HSET', bucketKey, BUCKET_META, pack(META, clockUs, timeUs, fenceUs, epochNumber,
  membersVersion, machineCount, countedUs, openedUs, lostUs))
