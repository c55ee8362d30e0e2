/**
 * Restores the counters and holds of the last run from its checkpoints, on the main thread, before
 * any thread decides. Of each shard it loads the last complete checkpoint. An incomplete file is
 * skipped with a message, and the one before it is loaded; so is a symbolic link, a FIFO or a file
 * of another user. A skipped file is removed where possible (of a link only the link): a later
 * start might find it newer than the files of this run. A start never fails because of them: a lost
 * counter allows a client too early, once.
 *
 * A counter is inserted by its hash, whatever table it was in. A hold keeps the place that its id
 * names.
 */

import { closeSync, lstatSync, openSync, readdirSync, readSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { OUTCOME } from '../../../core/decision.ts';
import { SAFE_OPEN_FLAGS, unusableReason } from '../../../core/file-ownership.ts';
import { newIdentity } from '../../../core/hash.ts';
import type { HoldTable } from '../../holds/hold-table.ts';
import { locate, newLocation } from '../../table/group.ts';
import { keyAt, type MemoryViews, NO_SLOT, type Slot, slotAt } from '../../table/layout.ts';
import { shardOf } from '../../table/shard.ts';
import { find, readIdentity } from '../../table/slot.ts';
import type { TableMemory } from '../../table/table-memory.ts';
import { isCounterKey, isExpired } from '../../windows/registry.ts';
import { type Cells, newCells } from '../../windows/rule.ts';
import { Group } from '../group.ts';
import { CHECKPOINT_AT, deniedAt, namespaceAt } from '../layout.ts';
import { readCells } from '../slot.ts';
import {
  CheckpointDamageError,
  type CheckpointHeader,
  COUNTER_FILES,
  decodeHeader,
  type FileKind,
  type HashKeyFingerprint,
  HEADER_BYTES,
  HOLD_FILES,
  parseFileName,
  readEntriesCrc,
} from './format.ts';
import { HoldInserter } from './hold-inserter.ts';

/** A file whose header is that of a checkpoint. */
interface CheckpointFile extends CheckpointHeader {
  name: string;
  kind: FileKind;
  entriesCrc: number;
}

/**
 * Bytes that are read at once, whole entries of each kind. A file is read twice, first to check
 * whether it is complete: to hold all of it would take as much memory again as its counters.
 */
const PART_BYTES = 2 ** 20;

export interface RestoreResult {
  counters: number;
  /** Found no slot in a smaller table, evicted another counter there, or were invalid. */
  lostCounters: number;
  holds: number;
  /** Have no place in a smaller table of holds, or were invalid. */
  lostHolds: number;
  /** One sentence for each file that was skipped. */
  damageMessages: string[];
}

export class CheckpointLoader {
  /** Weir's time at the start of the last checkpoint; 0 when there is none. */
  readonly latestStartedMs: number;
  readonly #directory: string;
  /** The files of counters by shard, the newest first. */
  readonly #files = new Map<number, CheckpointFile[]>();
  readonly #holdFiles: (CheckpointFile & { shard: number })[] = [];
  readonly #damageMessages: string[] = [];
  readonly #buffer = new Uint8Array(PART_BYTES);

  /** @param latestMs checkpoints of a later time are skipped: their clock was wrong */
  constructor(directory: string, key: HashKeyFingerprint, latestMs: number) {
    this.#directory = directory;
    for (const name of readdirSync(directory)) {
      const parsed = parseFileName(name);
      if (parsed === undefined) continue;
      const { kind, shard } = parsed;
      this.#tryRead(name, () => {
        const fault = unusableReason(lstatSync(join(directory, name)));
        if (fault !== undefined) throw new CheckpointDamageError(`it ${fault}`);
        const header = new ArrayBuffer(HEADER_BYTES);
        this.#read(name, 0, new Uint8Array(header));
        const entriesCrc = readEntriesCrc(header);
        const file = { name, kind, entriesCrc, ...decodeHeader(kind, header, key) };
        if (file.startedMs > latestMs) {
          throw new CheckpointDamageError("its time is far ahead of this machine's clock");
        }
        if (kind === HOLD_FILES) {
          this.#holdFiles.push({ ...file, shard });
          return;
        }
        const files = [...(this.#files.get(shard) ?? []), file];
        this.#files.set(
          shard,
          files.toSorted((a, b) => b.number - a.number),
        );
      });
    }
    this.latestStartedMs = Math.max(
      0,
      ...[...this.#files.values()].flat().map(({ startedMs }) => startedMs),
    );
  }

  /**
   * Restores the counters and the holds.
   * @param tables one for each shard, that no other thread uses yet
   * @param holdTables the same
   */
  restoreInto(
    tables: readonly TableMemory[],
    holdTables: readonly HoldTable[],
    nowMs: number,
  ): RestoreResult {
    const inserter = new CounterInserter(tables, nowMs);
    const holdInserter = new HoldInserter(holdTables, nowMs);
    for (const shard of [...this.#files.keys()].toSorted((a, b) => a - b)) {
      for (const file of this.#files.get(shard)!) {
        const insert = (entries: Uint8Array) => inserter.insertAll(entries);
        if (!this.#tryRead(file.name, () => this.#loadFile(file, insert))) continue;
        if (shard < tables.length) tables[shard].words[CHECKPOINT_AT] = file.number;
        this.#loadHolds(shard, file, holdInserter);
        break;
      }
    }
    holdInserter.finish();
    const { counters, lostCounters } = inserter;
    const { holds, lostHolds } = holdInserter;
    return { counters, lostCounters, holds, lostHolds, damageMessages: this.#damageMessages };
  }

  /** Loads the holds that were written with the counters of a shard, if there are any. */
  #loadHolds(shard: number, counters: CheckpointFile, inserter: HoldInserter): void {
    const file = this.#holdFiles.find((file) => {
      const { number, startedMs } = counters;
      return file.shard === shard && file.number === number && file.startedMs === startedMs;
    });
    if (file === undefined) return;
    const insert = (entries: Uint8Array) => inserter.insertAll(shard, entries);
    this.#tryRead(file.name, () => this.#loadFile(file, insert));
  }

  /** @returns true when its entries were inserted */
  #loadFile(file: CheckpointFile, insertAll: (entries: Uint8Array) => void): true {
    let crc = 0;
    for (const entries of this.#parts(file)) crc = crc32(entries, crc);
    if ((crc | 0) !== file.entriesCrc) throw new CheckpointDamageError('it is incomplete');
    for (const entries of this.#parts(file)) insertAll(entries);
    return true;
  }

  /** All entries, in one buffer for all parts. */
  *#parts({ name, kind, entryCount }: CheckpointFile): Generator<Uint8Array> {
    const end = entryCount * kind.entryBytes;
    for (let at = 0; at < end; at += PART_BYTES) {
      const part = this.#buffer.subarray(0, Math.min(PART_BYTES, end - at));
      this.#read(name, HEADER_BYTES + at, part);
      yield part;
    }
  }

  /** Runs `read` on a file; a failure to read it is a reason to skip it. */
  #tryRead<T>(name: string, read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (!(error instanceof CheckpointDamageError) && code === undefined) throw error;
      const path = join(this.#directory, name);
      this.#damageMessages.push(`${path} is skipped: ${message}`);
      this.#remove(path);
      return undefined;
    }
  }

  #remove(path: string): void {
    try {
      rmSync(path, { force: true });
    } catch (error) {
      this.#damageMessages.push(`${path} cannot be removed: ${(error as Error).message}`);
    }
  }

  /** Fills the bytes from a position of a file. */
  #read(name: string, position: number, bytes: Uint8Array): void {
    const { length } = bytes;
    const file = openSync(join(this.#directory, name), SAFE_OPEN_FLAGS);
    try {
      for (let at = 0; at < length; ) {
        const read = readSync(file, bytes, at, length - at, position + at);
        if (read === 0) throw new CheckpointDamageError('it is truncated');
        at += read;
      }
    } finally {
      closeSync(file);
    }
  }
}

class CounterInserter {
  counters = 0;
  lostCounters = 0;
  readonly #groups: readonly Group[];
  readonly #tables: readonly TableMemory[];
  readonly #nowMs: number;
  /** Scratch of one call. */
  readonly #location = newLocation();
  readonly #cells = newCells();

  constructor(tables: readonly TableMemory[], nowMs: number) {
    this.#tables = tables;
    this.#groups = tables.map((table) => new Group(table));
    this.#nowMs = nowMs;
  }

  /** @param entries from the first byte of their buffer on */
  insertAll({ buffer, byteLength }: Uint8Array): void {
    const entries = {
      words: new Int32Array(buffer, 0, byteLength / 4),
      doubles: new Float64Array(buffer, 0, byteLength / 8),
    };
    for (let i = 0; i < byteLength / COUNTER_FILES.entryBytes; i++) {
      this.#insertOne(entries, slotAt(0 as Slot, i));
    }
  }

  #insertOne(entries: MemoryViews, entry: Slot): void {
    const { words, doubles } = entries;
    const key = doubles[keyAt(entry)];
    const cells = this.#cells;
    readCells(entries, entry, cells);
    if (!isCounterKey(key) || !areCells(cells)) {
      this.lostCounters++;
      return;
    }
    if (isExpired(key, cells.newest, this.#nowMs)) return;
    const id = readIdentity(entries, entry, newIdentity());
    const shard = shardOf(id);
    const table = this.#tables[shard];
    const group = this.#groups[shard];
    const location = this.#location;
    locate(table, id, location);
    group.advanceTime(location.lock, this.#nowMs);
    // From a run with more shards, whose own files were loaded first.
    if (find(table, location, id, key) !== NO_SLOT) return;
    const namespaceTag = words[namespaceAt(entry)];
    const outcome = group.insert(location, id, namespaceTag, this.#nowMs, key, cells);
    if (outcome !== OUTCOME.decided) this.lostCounters++;
    if (outcome === OUTCOME.full) return;
    this.counters++;
    const slot = find(table, location, id, key);
    table.words[deniedAt(slot)] = words[deniedAt(entry)];
  }
}

/** Whether numbers that were read from a file can be the cells of a counter. */
function areCells({ newest, current, previous, limit }: Cells): boolean {
  return [newest, current, previous, limit].every(Number.isSafeInteger) && limit >= 1;
}
