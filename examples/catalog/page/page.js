'use strict';
const SIDES = {
  unprotected: { name: 'No cache', means: 'Every visitor asks the database.' },
  moka: { name: 'A cache in each instance', means: 'Each instance asks once (moka).' },
  protected: { name: 'bellwether', means: 'All instances together ask once.' },
};
const WAYS = Object.keys(SIDES);
const TICK = 500, SHOWN = 120, RECENT = 20, WIDTH = 600, HEIGHT = 160, STEP = WIDTH / (SHOWN - 1);
const OUTCOMES = {
  hit: 'From the cache. Now and then one instance asks again, before the answer is old.',
  stale: 'From the cache and a little old, while one instance asks again or because the database fails.',
  collapsed: 'Waited for a query that another visitor had begun.',
  led: 'Asked the database, for itself and for all that waited.',
  bypass: 'Asked the database because Redis did not answer.',
  failed: 'An error.',
};
/* The scenes of the story: what happens, what is counted, and what that shows. */
const STORY = {
  race: {
    path: 'race',
    happens: 'An instance changes a price, and tells the others, while they read it.',
    asks: 'Old price shown for',
    shows: 'A read that was under way brings the old price to a cache that was just emptied. bellwether refuses to keep it.',
    figure: change => change.last_seconds, words: age,
  },
  broken: {
    path: 'outage/broken',
    happens: 'The database breaks for 6 seconds.',
    asks: 'Errors for visitors',
    shows: 'Other answers expire, and then there are errors. bellwether gives the last good answer meanwhile.',
    figure: counts => counts.errors, words: errors => number.format(errors),
  },
  stopped: {
    path: 'outage/stopped',
    happens: 'Redis stops for 6 seconds.',
    asks: 'Queries at the database',
    shows: 'bellwether loses its store, and yet its visitors get no error. Each instance keeps answers for a second, as it hears of no change.',
    figure: counts => counts.queries,
    words: (queries, { errors }) => number.format(queries) + (errors ? `, ${plural(errors, 'error')}` : ''),
  },
  sql: {
    path: 'sql',
    happens: 'An UPDATE in SQL changes a price. No program tells a cache.',
    asks: 'Old price shown for',
    shows: 'Elsewhere it stays until it expires: here after 5 s. A trigger records the change, and bellwether hears of it.',
    figure: change => change.last_seconds, words: age,
  },
};
/* The upper ends of all classes of a histogram but the last one, in ms. */
const ENDS = Array.from({ length: 16 }, (_, index) => 0.25 * 2 ** index);
const still = matchMedia('(prefers-reduced-motion: reduce)');
const $ = id => document.getElementById(id);
const number = new Intl.NumberFormat('en');
const samples = [];
let scale = 10, isPlaying = false;

const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };
const sum = list => list.reduce((all, one) => all + one, 0);
const rate = value => value >= 10 || value === 0 ? number.format(Math.round(value)) : value.toFixed(1);
const plural = (count, one) => `${number.format(count)} ${count === 1 ? one : one === 'query' ? 'queries' : one + 's'}`;
const millis = value => value >= 1000 ? `${(value / 1000).toFixed(1)} s` : value >= 10 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
function age(seconds) { return seconds ? millis(seconds * 1000) : '0 s'; }
const money = cents => (cents / 100).toFixed(2);
/* The sum of a figure of one side in all processes. */
const total = (sample, side, figure) => sum(sample.processes.map(process => process[side][figure]));
const outcome = (sample, name) => sum(sample.processes.map(process => process.outcomes[name]));
const queriesFor = (sample, name) => sum(sample.processes.map(process => process.queries[name] ?? 0));

function quantile(histogram, share) {
  const all = sum(histogram);
  if (!all) return '–';
  let seen = 0;
  const index = histogram.findIndex(count => (seen += count) >= all * share);
  const brief = end => millis(end).replace('.0 ', ' ');
  return index === ENDS.length ? `> ${brief(ENDS[index - 1])}` : `< ${brief(ENDS[index])}`;
}

/* Queries a second at each sample. */
function rates(side) {
  return samples.slice(1).map((sample, index) =>
    (total(sample, side, 'queries') - total(samples[index], side, 'queries')) * 1000 / (sample.at - samples[index].at));
}

function drawCharts() {
  const each = WAYS.map(rates);
  const most = Math.max(1, ...each.flat());
  scale = [10, 20, 40, 60, 100, 160, 240, 400, 600, 1000, 1600, 2400, 4000].find(top => top >= most) || most;
  WAYS.forEach((side, index) => drawChart(document.querySelector(`.side[data-side="${side}"] .chart`), each[index]));
}

/* The newest point comes in from beyond the right edge. */
function drawChart(chart, values) {
  const shift = still.matches ? 0 : STEP;
  const points = values.map((value, index) => {
    const x = WIDTH - (values.length - 1 - index) * STEP + shift;
    return `${x.toFixed(1)},${(HEIGHT - 2 - value / scale * (HEIGHT - 4)).toFixed(1)}`;
  });
  if (!points.length) return;
  const [first] = points[0].split(','), [last] = points[points.length - 1].split(',');
  chart.querySelector('.line').setAttribute('d', `M${points.join('L')}`);
  chart.querySelector('.area').setAttribute('d', `M${first},${HEIGHT}L${points.join('L')}L${last},${HEIGHT}Z`);
  chart.querySelector('.top').textContent = number.format(scale);
  chart.querySelector('.mid').textContent = number.format(scale / 2);
  if (shift) {
    const slide = [{ transform: 'translateX(0)' }, { transform: `translateX(-${STEP}px)` }];
    const group = chart.querySelector('g');
    group.getAnimations().forEach(animation => animation.cancel());
    group.animate(slide, { duration: TICK, fill: 'forwards' });
  }
}

function showFigures(now, then) {
  const seconds = Math.max(0.5, (now.at - then.at) / 1000);
  const last = samples[Math.max(0, samples.length - 3)];
  const aSecond = queries => queries * 1000 / Math.max(TICK, now.at - last.at);
  for (const side of WAYS) {
    const more = figure => total(now, side, figure) - total(then, side, figure);
    const latency = ENDS.concat(0).map((_, index) =>
      sum(now.processes.map((process, place) => process[side].latency[index] - then.processes[place][side].latency[index])));
    text(`${side}-rate`, rate(aSecond(total(now, side, 'queries') - total(last, side, 'queries'))));
    text(`${side}-each`, now.processes.map((process, place) =>
      rate(aSecond(process[side].queries - last.processes[place][side].queries))).join(' + '));
    text(`${side}-answers`, rate(more('answers') / seconds));
    text(`${side}-slowest`, quantile(latency, 0.99));
    text(`${side}-queued`, number.format(total(now, side, 'queued')));
    text(`${side}-errors`, number.format(more('errors')));
    $(`${side}-errors`).classList.toggle('alarm', more('errors') > 0);
    text(`${side}-queries`, number.format(total(now, side, 'queries')));
  }
}

function showOutcomes(now, then) {
  const seconds = Math.max(0.5, (now.at - then.at) / 1000);
  const recent = Object.keys(OUTCOMES).map(name => outcome(now, name) - outcome(then, name));
  const all = sum(recent) || 1;
  Object.keys(OUTCOMES).forEach((name, index) => {
    $(`mix-${name}`).style.width = `${recent[index] / all * 100}%`;
    text(`${name}-rate`, rate(recent[index] / seconds));
    text(`${name}-total`, number.format(outcome(now, name)));
    text(`${name}-queries`, number.format(queriesFor(now, name)));
  });
  const names = Object.keys(OUTCOMES);
  text('all-rate', rate(sum(recent) / seconds));
  text('all-total', number.format(sum(names.map(name => outcome(now, name)))));
  text('all-queries', number.format(sum(names.map(name => queriesFor(now, name)))));
}

function showState({ store, slow, broken, stopped, missing, processes, urls }) {
  const says = (id, words, mood) => { text(id, words); $(id).dataset.mood = mood; };
  says('processes-state', processes.length === 1 ? '1 instance' : `${processes.length} instances`, 'good');
  says('database-state', `database: ${broken ? 'broken' : slow ? 'slow' : 'up'}`, broken ? 'bad' : slow ? 'fair' : 'good');
  says('store-state', `store: ${store}${stopped ? ', stopped' : ''}`, stopped ? 'bad' : 'good');
  for (const [id, isOn] of [['slow', slow], ['broken', broken], ['stopped', stopped === true]]) {
    $(id).setAttribute('aria-pressed', String(isOn));
  }
  $('stopped').disabled = stopped === null;
  $('sql').disabled = isPlaying || Boolean(missing);
  if (missing) text('sql-note', missing);
  $('alone').hidden = processes.length > 1;
  const at = place => urls[place % urls.length];
  text('curl', `curl -i ${at(0)}/api/product/42\ncurl -i '${at(1)}/api/product/42?way=moka'
curl -H 'content-type: application/json' -d '{"price_cents": 999}' ${at(2)}/api/product/42\ncurl ${at(0)}/metrics`);
}

function show(figures) {
  figures.at = performance.now();
  const latest = samples[samples.length - 1];
  /* Another program now: its counts began at zero. */
  if (latest && total(latest, 'unprotected', 'queries') > total(figures, 'unprotected', 'queries')) samples.length = 0;
  samples.push(figures);
  if (samples.length > SHOWN + 2) samples.shift();
  const then = samples[Math.max(0, samples.length - 1 - RECENT)];
  drawCharts();
  showFigures(figures, then);
  showOutcomes(figures, then);
  showState(figures);
}

/* One line of a result for each side: its name, a figure, how much of the most that is, and words. */
function lines(id, verdict, line, words) {
  const most = Math.max(1, ...WAYS.map(side => line(side).value));
  const runs = WAYS.map(side => {
    const { value, figure, note } = line(side);
    return `<div class="run" data-side="${side}"><div class="name"><span><span class="dot"></span>${SIDES[side].name}</span>
      <b id="${id}-${side}" data-value="${value}">${figure}</b></div>
      <div class="track"><i style="width:${Math.max(0.3, value / most * 100)}%"></i></div><p class="quiet">${note}</p></div>`;
  });
  $('result').innerHTML = `<p class="verdict">${verdict}</p>${runs.join('')}<p class="quiet">${words}</p>`;
}

function showBurst(bursts) {
  const line = side => {
    const queries = bursts[side].map(process => process.queries);
    const times = bursts[side].flatMap(process => process.millis).sort((one, other) => one - other);
    const errors = sum(bursts[side].map(process => process.errors));
    const each = queries.length > 1 ? ` (${queries.join(' + ')})` : '';
    return {
      value: sum(queries),
      figure: plural(sum(queries), 'query') + each,
      note: `Half of the visitors waited ${millis(times[times.length / 2 | 0])}, the last one ${millis(times[times.length - 1])}; ${errors ? plural(errors, 'error') : 'no errors'}.`,
    };
  };
  lines('burst', `1,000 visitors wanted product ${number.format(bursts.sku)}, which was in no cache.`, line,
    'A query takes 20 ms, and each instance has eight connections to the database. A cache in each instance asks once for each of them, so 100 times in a fleet of 100; bellwether asks once, and pays with a round trip to Redis. What else it gives for that is in the story.');
}

const showChange = (id, happened, words) => change => {
  const line = side => {
    const { answers, processes, last_seconds } = change[side];
    const sellers = plural(processes.length, 'instance');
    return answers
      ? { value: last_seconds, figure: age(last_seconds), note: `${sellers} sold at ${money(change.old_cents)}.` }
      : { value: 0, figure: '0 s', note: `Every answer after the change was ${money(change.new_cents)}.` };
  };
  lines(id, `${happened} from ${money(change.old_cents)} to ${money(change.new_cents)}. How long did visitors get the old one?`, line, words);
};
const showRace = showChange('race', 'The price rose',
  'All caches were told to forget it, but reads were under way: what they brought came later, and was kept. Here answers expire after 5 s; where they live for an hour, it is an hour. bellwether refuses to keep such an answer.');
const showSql = showChange('sql', 'SQL raised the price',
  'No program told a cache. Here answers expire after 5 s; where they live for an hour, it is an hour. A trigger recorded the change, and each instance follows these records.');

/* Why a scene cannot be played here. */
function hindrance(id) {
  const { stopped, missing } = samples[samples.length - 1] || {};
  if (id === 'sql') return missing;
  return id === 'stopped' && stopped === null ? 'This Redis is not the program’s own, so it is not stopped.' : null;
}

/* The story with what has been played of it. */
function showStory(played = {}) {
  const names = WAYS.map(side => `<span data-side="${side}"><span class="dot"></span>${SIDES[side].name}</span>`);
  $('result').innerHTML = `<div class="cells names"><span></span>${names.join('')}</div>` + Object.entries(STORY).map(([id, scene], place) => {
    const cells = WAYS.map(side => {
      const result = played[id]?.[side];
      const value = result && scene.figure(result);
      const figure = result ? scene.words(value, result) : '–';
      return `<b data-side="${side}" id="story-${id}-${side}" data-value="${value ?? ''}">${figure}</b>`;
    });
    const why = played[id]?.why;
    return `<div class="scene" id="scene-${id}" data-state="${played[id]?.state ?? 'waits'}">
      <p class="verdict">${place + 1}. ${scene.happens}</p>
      ${why ? '<p class="why"></p>' : `<div class="cells"><p class="quiet">${scene.asks}</p>${cells.join('')}</div>`}
      <p class="quiet">${scene.shows}</p></div>`;
  }).join('');
  for (const id of Object.keys(STORY)) {
    if (played[id]?.why) document.querySelector(`#scene-${id} .why`).textContent = played[id].why;
  }
}

async function playStory() {
  const played = {};
  for (const [id, scene] of Object.entries(STORY)) {
    const why = hindrance(id);
    played[id] = why ? { state: 'missing', why } : { state: 'plays' };
    showStory(played);
    if (why) continue;
    const failed = fault => ({ state: 'missing', why: `That did not work: ${fault.message}` });
    played[id] = await post(`/demo/${scene.path}`).then(answer => ({ ...answer, state: 'done' }), failed);
    showStory(played);
  }
}

async function post(path) {
  const response = await fetch(path, { method: 'POST' });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function complain(fault) {
  const line = document.createElement('p');
  line.className = 'verdict';
  line.textContent = `That did not work: ${fault.message}`;
  $('result').replaceChildren(line);
}

async function press(button, busy, play) {
  const name = button.textContent;
  const buttons = ['story', 'race', 'sql', 'burst'].map($);
  isPlaying = true;
  buttons.forEach(one => { one.disabled = true; });
  button.textContent = busy;
  await play().catch(complain);
  isPlaying = false;
  buttons.forEach(one => { one.disabled = one.id === 'sql' && Boolean(hindrance('sql')); });
  button.textContent = name;
  button.focus({ preventScroll: true });
}

function build() {
  const figures = { answers: 'answers/s', slowest: 'slowest 1 %', queued: 'waiting', errors: 'errors in 10 s', queries: 'queries in all' };
  $('sides').innerHTML = WAYS.map(side => `<article class="card side" data-side="${side}">
    <h2><span class="dot"></span>${SIDES[side].name}</h2><p class="quiet">${SIDES[side].means}</p>
    <p class="big"><output id="${side}-rate">–</output> <span>queries a second</span></p>
    <p class="quiet">from each instance: <output id="${side}-each">–</output></p>
    <div class="chart"><svg viewBox="0 0 600 160" preserveAspectRatio="none" role="img" aria-label="Queries a second over the last minute: ${SIDES[side].name}"><g><path class="area"/><path class="line"/></g></svg><span class="top"></span><span class="mid"></span><span class="from">1 min ago</span><span class="now">now</span></div>
    <dl class="figures">${Object.entries(figures).map(([id, name]) => `<div><dt>${name}</dt><dd id="${side}-${id}">–</dd></div>`).join('')}</dl></article>`).join('');
  $('mix').innerHTML = Object.keys(OUTCOMES).map(name => `<i id="mix-${name}" style="background:var(--${name})"></i>`).join('');
  $('outcomes').innerHTML = Object.entries(OUTCOMES).map(([name, meaning]) =>
    `<tr><th scope="row" style="--side:var(--${name})"><span class="dot"></span>${meaning}</th><td id="${name}-rate">–</td><td id="${name}-total">–</td><td id="${name}-queries">–</td></tr>`).join('')
    + '<tr><th scope="row">All.</th><td id="all-rate">–</td><td id="all-total">–</td><td id="all-queries">–</td></tr>';
  showStory();
}

function connect() {
  const events = new EventSource('/events');
  const live = (words, mood) => { text('link-state', words); $('link-state').dataset.mood = mood; };
  events.onmessage = event => { live('live', 'good'); show(JSON.parse(event.data)); };
  events.onerror = () => live('not connected: these figures are old', 'bad');
}

build();
connect();
$('story').onclick = () => press($('story'), 'Playing…', playStory);
$('race').onclick = () => press($('race'), 'Asking until all agree…', () => post('/demo/race').then(showRace));
$('sql').onclick = () => press($('sql'), 'Asking until all agree…', () => post('/demo/sql').then(showSql));
$('burst').onclick = () => press($('burst'), 'They are asking…', () => post('/demo/burst').then(showBurst));
for (const id of ['slow', 'broken', 'stopped']) {
  $(id).onclick = () => post(`/demo/${id}?on=${$(id).getAttribute('aria-pressed') !== 'true'}`).catch(complain);
}
