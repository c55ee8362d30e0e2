/**
 * Opens the analytics of a start. A file that cannot be used never stops the start: weir serves
 * checks without analytics then, and the log says why.
 */

import { Analytics } from '../analytics/analytics.ts';
import { AnalyticsDatabase } from '../analytics/database.ts';
import type { Log } from '../core/log.ts';
import { namespaceKey, OTHER_NAMESPACE } from '../core/namespace.ts';
import type { Registry } from '../registry/registry.ts';
import type { Foundation } from './foundation.ts';

/** @returns undefined with WEIR_ANALYTICS=off, and where the file cannot be used */
export function openAnalytics(
  { settings, directory, shared, state, records }: Foundation,
  log: Log,
): Analytics | undefined {
  if (settings.analytics === 'off') return undefined;
  const { control, clock } = state;
  try {
    const database = AnalyticsDatabase.open(directory.path, clock.nowMs(), (movedTo, err) => {
      log.error({ err, movedTo }, 'the analytics cannot be read; weir starts with empty ones');
    });
    const { analyticsMinutes: minutes, analyticsHours: hours } = settings;
    // One of them may have been deleted by another machine, or right before the process ended.
    if (!shared?.startedWithoutRedis) {
      database.deleteOthers(new Set([...keysOf(records.registry), OTHER_NAMESPACE]));
      database.deleteOtherUsage(records.registry.overrides());
    }
    const keysByRow = () => records.statsRows.owners.map((owner) => owner?.key);
    const { usageRows: usage } = records;
    return new Analytics({ control, clock, database, keysByRow, usage, log, minutes, hours });
  } catch (err) {
    log.error({ err }, 'the analytics cannot be opened; weir counts none');
    return undefined;
  }
}

function keysOf(registry: Registry): string[] {
  return registry.namespaces().map(({ name, predecessor }) => namespaceKey(name, predecessor));
}
