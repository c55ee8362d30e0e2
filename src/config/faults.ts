/** What is wrong with a value whose type is right: of settings that a schema alone cannot check. */

import { describe } from '../describe.ts';
import type { SettingName } from './schema.ts';

const HOST_NAME_MAX_CHARACTERS = 253;
const LABEL = '[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?';
const HOST_NAME = new RegExp(`^${LABEL}(\\.${LABEL})*$`, 'i');

/** @returns the names of WEIR_ADMIN_HOSTS */
export function hostNames(list: string): string[] {
  return list.split(',').map((name) => name.trim());
}

function faultInHosts(list: string): string | undefined {
  const wrong = hostNames(list).find((name) => {
    return name.length > HOST_NAME_MAX_CHARACTERS || !HOST_NAME.test(name);
  });
  return wrong === undefined ? undefined : `${describe(wrong)} in ${describe(list)}`;
}

const FAULTS: Partial<Record<SettingName, (value: string) => string | undefined>> = {
  adminHosts: faultInHosts,
};

/** @returns what the setting got instead of what it takes; undefined where the value is right */
export function faultIn(name: SettingName, value: unknown): string | undefined {
  return FAULTS[name]?.(value as string);
}
