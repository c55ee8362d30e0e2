/** The tables of all settings, in groups, from their declarations. */

import {
  annotations,
  environmentName,
  flagName,
  SETTING_NAMES,
  type SettingName,
} from '../../src/config/schema.ts';
import { SETTING_GROUPS } from '../../src/core/setting.ts';
import { inlineCode, markdownTable } from './markdown.ts';

export function settingsTables(): string {
  return SETTING_GROUPS.map((group) => {
    const names = SETTING_NAMES.filter((name) => annotations(name).group === group);
    const header = ['names', 'default', 'accepts', 'meaning'];
    return `### ${group}\n\n${markdownTable(header, names.map(settingRow))}`;
  }).join('\n\n');
}

function settingRow(name: SettingName): string[] {
  const { accepts, default: initial, defaultRule, secret } = annotations(name);
  const { description, details = '' } = annotations(name);
  const names = [
    environmentName(name),
    ...(secret ? [] : [flagName(name)]),
    ...(name === 'config' ? [] : [name]),
  ];
  const none = initial === undefined ? 'none' : inlineCode(String(initial));
  return [
    names.map(inlineCode).join('<br>'),
    defaultRule ?? none,
    accepts,
    `${description[0].toUpperCase()}${description.slice(1)}. ${details}`.trimEnd(),
  ];
}
