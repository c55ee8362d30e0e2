/** In which namespaces an identifier is, for `weir explain` without a namespace. */

import type { ResponseOf } from '../api/operations/documentation.ts';
import { formatDuration } from '../core/duration.ts';
import { byDenial, usedOf } from '../core/window-rules.ts';
import { isoTime } from '../shared-memory/clock.ts';
import { formatCell, formatCount, formatTable } from './output.ts';
import type { ServerClient } from './server-client.ts';

const OPERATION = 'ratelimits.findIdentifier';
type FindResponse = ResponseOf<typeof OPERATION>;
export type FoundPlace = FindResponse['found'][number];

export interface FoundPlaces {
  /** See `byDenial`. */
  found: FoundPlace[];
  /** Namespaces that the key may read. */
  total: number;
}

/** @throws StartError */
export async function findIdentifier(
  server: ServerClient,
  identifier: string,
): Promise<FoundPlaces> {
  const found: FoundPlace[] = [];
  let page: FindResponse | undefined;
  do {
    const cursor = page?.cursor;
    page = await server.post<FindResponse>(OPERATION, { identifier, cursor });
    if (!Array.isArray(page.found)) throw server.unexpectedResponseError(200);
    found.push(...page.found);
  } while (page.cursor !== undefined);
  return { found: found.toSorted(byDenial), total: page.total };
}

export function placesTable(found: readonly FoundPlace[]): string {
  const rows = found.map((place) => [
    formatCell(place.namespace.name),
    place.lastDenied === undefined ? '-' : isoTime(place.lastDenied.until),
    [...counterTexts(place), ...holdTexts(place)].join(', ') || '-',
    overrideText(place),
  ]);
  const header = ['NAMESPACE', 'LAST DENIED', 'COUNTERS AND HOLDS', 'OVERRIDE OR BLOCK'];
  return formatTable(header, rows).trimEnd();
}

function counterTexts({ counters, last }: FoundPlace): string[] {
  return counters.map((counter) => {
    const { duration, limit } = counter;
    return `${usedOf(counter, last)} of ${limit} used per ${formatDuration(duration)}`;
  });
}

function holdTexts({ holds }: FoundPlace): string[] {
  return holds === undefined ? [] : [formatCount(holds.live, 'live hold')];
}

function overrideText({ block, override }: FoundPlace): string {
  if (block !== undefined) return `blocked until ${isoTime(block.expires)}`;
  if (override === undefined) return '-';
  const { identifier, limit, duration } = override;
  return `${limit} per ${formatDuration(duration)} for ${formatCell(identifier)}`;
}
