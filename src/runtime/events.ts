/** The events of decisions, as the settings say. */

import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { LoadedSettings } from '../config/load.ts';
import { StartError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { EventCollector } from '../events/event-collector.ts';
import { EventFile, STANDARD_OUTPUT } from '../events/event-file.ts';
import type { EventPlan } from '../events/event-recorder.ts';
import { allocateEventRing } from '../events/event-ring.ts';
import type { Control } from '../shared-memory/control.ts';

const EVENTS_FILE = 'events.jsonl';
const MIB = 2 ** 20;

/** @returns undefined where decisions become no events */
export function allocateEvents(
  settings: LoadedSettings,
  { acceptorCount }: Control,
): EventPlan | undefined {
  const { events: selection, eventsOneIn: oneIn, eventsIdentifier: identifierForm } = settings;
  if (selection === 'off') return undefined;
  const rings = Array.from({ length: acceptorCount }, (_, index) => allocateEventRing(index));
  return { selection, oneIn, identifierForm, rings };
}

/** @throws StartError where the file cannot be written */
export function openEvents(
  { rings }: EventPlan,
  settings: LoadedSettings,
  directory: string,
  log: Log,
): { file: EventFile; collector: EventCollector } {
  const path = settings.eventsFile ?? join(directory, EVENTS_FILE);
  if (path !== STANDARD_OUTPUT) requireWritable(path);
  const maxBytes = settings.eventsFileMib * MIB;
  const file = new EventFile({ path, maxBytes, keptFiles: settings.eventsFiles, log });
  return { file, collector: new EventCollector(rings, file) };
}

function requireWritable(path: string): void {
  try {
    closeSync(openSync(path, 'a', 0o600));
  } catch (error) {
    throw new StartError(`the file of events cannot be written: ${(error as Error).message}`);
  }
}
