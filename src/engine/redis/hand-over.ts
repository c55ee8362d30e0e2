/**
 * What a machine knows of its counters when it stops, for the next process with its data directory.
 * That one goes on from there: it takes over the records in Redis, and counts on what this one had
 * used, in case that Redis loses it, or did not get it, or is down. Each shard worker writes a file
 * at its end, which the main thread reads and removes at the next start.
 *
 *   line           CRC-32 of the rest
 *   line of JSON   version | process and its workers | epochs, and other members, by bucket
 *   counters       FIELDS doubles each
 *
 * A file that is damaged is not used: then nothing is known, as after `kill -9`.
 */

import { closeSync, lstatSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { SAFE_OPEN_FLAGS, unusableReason } from '../../core/file-ownership.ts';
import { type Identity, newIdentity } from '../../core/hash.ts';
import { NO_SLOT, type Slot } from '../table/layout.ts';
import { shardOf } from '../table/shard.ts';
import { expiryMs, isCounterKey, isGcraKey } from '../windows/registry.ts';
import { newLeaseState } from './counter/lease-state.ts';
import type { LeaseTable } from './lease-table.ts';
import { NO_WINDOW } from './scripts/protocol.ts';

const VERSION = 1;
const FILE_NAME = /^usage-\d+$/;
/** Hash 0 to 3, namespace tag, key, and of windows or GCRA: see `fieldsOf`. */
const FIELDS = 13;
/** About so many numbers are read in a turn of the loop: 10 ms. */
const PART_NUMBERS = 4_096 * FIELDS;
const LINE_END = 0x0a;
const STORED = 1;
const DIRTY = 2;

export interface Predecessor {
  /** 16 hexadecimal digits that begin the names of its members. */
  processId: string;
  workers: number;
  /** By bucket, the epoch in which it had reported all; '' where its workers disagree. */
  epochs: readonly string[];
  /** By bucket, the members of other machines that it knew. */
  members: readonly (readonly string[])[];
  /** Whether the files of all of its workers were usable. */
  isComplete?: boolean;
}

interface Header extends Predecessor {
  version: number;
}

/** @param tables those of the worker, of which no thread decides any more */
export async function writeHandOver(
  directory: string,
  worker: number,
  predecessor: Predecessor,
  tables: readonly LeaseTable[],
): Promise<void> {
  const header: Header = { version: VERSION, ...predecessor };
  const parts: Uint8Array[] = [Buffer.from(`${JSON.stringify(header)}\n`)];
  let crc = crc32(parts[0]);
  for await (const part of readCounters(tables)) {
    parts.push(part);
    crc = crc32(part, crc);
  }
  const path = join(directory, `usage-${worker}`);
  rmSync(path, { force: true });
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(`${crc}\n`);
    for (const part of parts) await file.writeFile(part);
  } finally {
    await file.close();
  }
}

/** Reads the counters, some in a turn of the loop: the worker must show heartbeats. */
async function* readCounters(tables: readonly LeaseTable[]): AsyncGenerator<Uint8Array> {
  const numbers: number[] = [];
  const takePart = () => new Uint8Array(Float64Array.from(numbers.splice(0)).buffer);
  for (const table of tables) {
    for (let group = 0; group < table.groups; group++) {
      table.forEachSlotOf(group, (slot, lock) => {
        const fields = fieldsOf(table, slot, table.isDirty(lock, slot));
        if (fields === undefined) return;
        const { h0, h1, h2, h3 } = table.readIdentity(slot, newIdentity());
        numbers.push(h0, h1, h2, h3, table.readNamespace(slot), table.readKey(slot), ...fields);
      });
      if (numbers.length < PART_NUMBERS) continue;
      yield takePart();
      await nextTurn();
    }
  }
  // The CRC of no bytes is 0, whatever it was before.
  if (numbers.length > 0) yield takePart();
}

/**
 * Of windows: window, own usage and that of others, own usage and that of all in the window before,
 * last limit, 1 if Redis stores a record plus 2 if a message is to report it. Of GCRA: newest,
 * current, limit, tokens that Redis did not get.
 */
function fieldsOf(table: LeaseTable, slot: Slot, isDirty: boolean): number[] | undefined {
  if (isGcraKey(table.readKey(slot))) {
    const { newest, current, limit } = table.readGcra(slot);
    if (newest <= 0) return undefined;
    return [newest, current, limit, table.readUnreported(slot), 0, 0, 0];
  }
  const state = newLeaseState();
  table.read(slot, state);
  const { window, spent, others, previousSpent, previousKnownUsage, lastLimit, isStored } = state;
  // What became of a message under way is not known.
  const mustTell = isDirty || state.isPinned;
  if (window === NO_WINDOW) return undefined;
  const flags = (isStored ? STORED : 0) + (mustTell ? DIRTY : 0);
  return [window, spent, others, previousSpent, previousKnownUsage, lastLimit, flags];
}

/**
 * Inserts the counters that an earlier process has handed over, and removes its files.
 * @param directory undefined: there is none
 * @param tables by shard, empty
 * @returns undefined if there are no usable files
 */
export function takeHandOver(
  directory: string | undefined,
  tables: readonly LeaseTable[],
  now: { unixMs: number; monotonicMs: number },
): Predecessor | undefined {
  const headers: Header[] = [];
  if (directory === undefined) return undefined;
  for (const name of readdirSync(directory)) {
    if (!FILE_NAME.test(name)) continue;
    const path = join(directory, name);
    const file = readHandOver(path);
    rmSync(path, { force: true });
    // Of another process, which could not remove it.
    const isOther = headers.some(({ processId }) => processId !== file?.header.processId);
    if (file === undefined || isOther) continue;
    const { header, counters } = file;
    for (let at = 0; at + FIELDS <= counters.length; at += FIELDS) {
      insert(tables, counters.subarray(at, at + FIELDS), now);
    }
    headers.push(header);
  }
  const [first] = headers;
  if (first === undefined) return undefined;
  const isComplete = headers.length === first.workers;
  return {
    processId: first.processId,
    workers: first.workers,
    isComplete,
    epochs: first.epochs.map((epoch, bucket) => {
      return isComplete && headers.every(({ epochs }) => epochs[bucket] === epoch) ? epoch : '';
    }),
    members: first.epochs.map((_, bucket) => {
      return [...new Set(headers.flatMap(({ members }) => members[bucket] ?? []))];
    }),
  };
}

function readHandOver(path: string): { header: Header; counters: Float64Array } | undefined {
  let file: number | undefined;
  try {
    if (unusableReason(lstatSync(path)) !== undefined) return undefined;
    file = openSync(path, SAFE_OPEN_FLAGS);
    const bytes = readFileSync(file);
    const start = bytes.indexOf(LINE_END) + 1;
    if (bytes.toString('latin1', 0, start) !== `${crc32(bytes.subarray(start))}\n`)
      return undefined;
    const end = bytes.indexOf(LINE_END, start);
    const header = JSON.parse(bytes.toString('latin1', start, end)) as Header;
    if (header.version !== VERSION) return undefined;
    const counters = Uint8Array.from(bytes.subarray(end + 1));
    return { header, counters: new Float64Array(counters.buffer) };
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function insert(
  tables: readonly LeaseTable[],
  [h0, h1, h2, h3, namespaceTag, key, ...fields]: Float64Array,
  { unixMs, monotonicMs }: { unixMs: number; monotonicMs: number },
): void {
  if (!isCounterKey(key)) return;
  const [newest] = fields;
  if (!(expiryMs(key, newest) > unixMs)) return;
  const identity: Identity = { h0, h1, h2, h3 };
  const table = tables[shardOf(identity)];
  table.withLock(identity, (lock) => {
    const slot = table.insert(identity, namespaceTag, key, monotonicMs);
    if (slot === NO_SLOT) return;
    const isDirty = isGcraKey(key)
      ? insertGcra(table, slot, fields)
      : insertWindow(table, slot, fields);
    if (isDirty) table.setDirty(lock, slot, true);
  });
}

/** @returns whether a message is to report it */
function insertWindow(
  table: LeaseTable,
  slot: Slot,
  [window, spent, others, previousSpent, previousKnownUsage, lastLimit, flags]: number[],
): boolean {
  const state = newLeaseState();
  table.read(slot, state);
  const previousUsage = Math.max(0, previousKnownUsage);
  Object.assign(state, {
    ...{ window, spent, others, previousSpent, previousKnownUsage, previousUsage, lastLimit },
    ...{ othersDeducted: others, isStored: (flags & STORED) !== 0, isInherited: true },
  });
  table.write(slot, state);
  return (flags & DIRTY) !== 0;
}

/** @returns whether a message is to report it */
function insertGcra(
  table: LeaseTable,
  slot: Slot,
  [newest, current, limit, unreported]: number[],
): boolean {
  table.writeGcra(slot, { newest, current, limit });
  table.setUnreported(slot, unreported);
  return unreported > 0;
}
