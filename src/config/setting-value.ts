/**
 * The value and the source of a setting, its validation for flags, environment and file, and the
 * handling of faults.
 */

import { readFileSync } from 'node:fs';
import { Check } from 'typebox/value';
import { formatValue } from '../core/describe.ts';
import { readDuration } from '../core/duration.ts';
import { describeFileError } from '../core/errno.ts';
import { StartError } from '../core/errors.ts';
import type { TextPosition } from '../core/json-text.ts';
import { nearestName } from '../core/nearest.ts';
import { annotations, type SettingName, Settings } from './schema.ts';

export interface SettingValue {
  /** A flag, a variable, or a name in the file, as in messages. */
  source: string;
  value: unknown;
}
export type SettingsLayer = Map<SettingName, SettingValue>;

/** A fault at a position in a file. */
export class FileError extends StartError {
  readonly position: TextPosition;

  constructor(path: string, position: TextPosition, message: string) {
    super(`in ${path}, line ${position.line}, column ${position.column}: ${message}`);
    this.position = position;
  }
}

/** A fault of settings that each are valid, but not together. */
export class SettingsError extends StartError {
  readonly settings: readonly SettingName[];

  constructor(settings: readonly SettingName[], message: string) {
    super(message);
    this.settings = settings;
  }
}

/** Handles a fault: a start throws the first one, `weir config check` collects all. */
export type FaultHandler = (fault: StartError) => void;

export function throwFault(fault: StartError): never {
  throw fault;
}

/** @returns undefined if the action threw a StartError, which is passed to `onFault` */
export function attempt<T>(onFault: FaultHandler, action: () => T): T | undefined {
  try {
    return action();
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    onFault(error);
    return undefined;
  }
}

/** @returns the value, a duration in ms. @throws StartError */
export function requireValid(name: SettingName, { source, value }: SettingValue): unknown {
  const fault = describeFault(name, source, value);
  if (fault !== undefined) throw new StartError(fault);
  return withMilliseconds(name, value);
}

/** Converts a duration with a unit. Other values stay unchanged. */
export function withMilliseconds(name: SettingName, value: unknown): unknown {
  if (!annotations(name).isDuration || typeof value !== 'string') return value;
  const bounds = { minimumMs: 0, maximumMs: Number.MAX_SAFE_INTEGER, needsUnit: true } as const;
  const ms = readDuration(value, bounds);
  return typeof ms === 'number' ? ms : value;
}

/** @returns a sentence; undefined for a valid value */
export function describeFault(
  name: SettingName,
  source: string,
  value: unknown,
): string | undefined {
  const got = Check(Settings.properties[name], withMilliseconds(name, value))
    ? annotations(name).describeInvalid?.(value as string)
    : describeValue(name, value);
  return got && `${source} must be ${annotations(name).accepts}; got ${got}`;
}

function describeValue(name: SettingName, value: unknown): string {
  return annotations(name).secret ? describeSecret(value) : formatValue(value);
}

/** Describes an invalid secret without revealing it. */
function describeSecret(value: unknown): string {
  if (typeof value !== 'string') return 'a value that is not a text';
  return value === '' ? 'nothing' : `a text of ${[...value].length} characters`;
}

export function readText(source: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new StartError(`${path} (${source}) cannot be read: ${describeFileError(error)}`);
  }
}

export function describeUnknownSetting(key: string, known: readonly string[]): string {
  const near = nearestName(key, known);
  const hint = near === undefined ? 'see weir help serve' : `is it ${near}?`;
  return `${key} is no setting of weir; ${hint}`;
}
