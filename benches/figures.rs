//! The results of races, as printed lines.

/// A contender of a race.
#[derive(Clone, Copy)]
pub(crate) struct Number(pub(crate) usize);

/// Nanoseconds per operation, in one round.
#[derive(Clone, Copy)]
pub(crate) struct Lap {
    pub(crate) wall: f64,
    /// Of the processors, on all threads of this process.
    pub(crate) cpu: f64,
    /// The same, on all threads of the servers, where that is measured.
    pub(crate) servers: f64,
}

/// The result of a race: the laps of each contender.
pub(crate) struct Outcome {
    section: &'static str,
    case: String,
    names: Vec<String>,
    laps: Vec<Vec<Lap>>,
    is_smoke: bool,
}

impl Outcome {
    pub(crate) fn new(
        section: &'static str,
        case: String,
        names: Vec<String>,
        laps: Vec<Vec<Lap>>,
        is_smoke: bool,
    ) -> Self {
        Self { section, case, names, laps, is_smoke }
    }

    /// Prints the time per operation of each contender.
    pub(crate) fn print(&self, ones: &[Number]) {
        for one in ones {
            let nanos = Spread::of(self.laps(*one).map(|lap| lap.wall));
            self.line(self.name(*one), &format!("{:>10.0} ns", nanos.median));
        }
    }

    /// Prints how many times the other's time one takes.
    pub(crate) fn print_times(&self, one: Number, other: Number, wanted: Wanted) {
        self.print_ratio("time", one, other, |one, other| one.wall / other.wall, wanted);
    }

    /// Prints how many times the other's operations one does in the same time.
    pub(crate) fn print_rate(&self, one: Number, other: Number, wanted: Wanted) {
        self.print_ratio("rate", one, other, |one, other| other.wall / one.wall, wanted);
    }

    /// Prints how much more of the processors one takes than the other: nanoseconds by the medians.
    pub(crate) fn print_more_cpu(&self, one: Number, other: Number) {
        let cpu = |one| self.laps(one).map(|lap: &Lap| lap.cpu);
        let more = Spread::of(cpu(one).zip(cpu(other)).map(|(one, other)| one - other));
        let Spread { low, median, high } = more;
        let name = format!("{} - {}, cpu", self.name(one), self.name(other));
        self.line(&name, &format!("{median:>10.0} ns  ({low:.0} to {high:.0})"));
    }

    /// Prints what each contender takes of the processors, here and in the servers.
    pub(crate) fn print_cpu(&self, ones: &[Number]) {
        for one in ones {
            let here = Spread::of(self.laps(*one).map(|lap| lap.cpu)).median;
            let servers = Spread::of(self.laps(*one).map(|lap| lap.servers)).median;
            let name = format!("{}, cpu", self.name(*one));
            self.line(&name, &format!("{here:>10.0} ns  and {servers:.0} ns in the servers"));
        }
    }

    /// Prints one contender's time minus the time of others.
    pub(crate) fn print_remainder(&self, name: &str, whole: Number, parts: &[Number]) {
        let of_parts =
            |round: usize| parts.iter().map(|part| self.laps[part.0][round].wall).sum::<f64>();
        let left = self.laps(whole).enumerate().map(|(round, lap)| lap.wall - of_parts(round));
        self.line(name, &format!("{:>10.0} ns", Spread::of(left).median));
    }

    fn print_ratio(
        &self,
        what: &str,
        one: Number,
        other: Number,
        ratio: impl Fn(&Lap, &Lap) -> f64,
        wanted: Wanted,
    ) {
        let rounds = self.laps(one).zip(self.laps(other));
        let ratios = Spread::of(rounds.map(|(one, other)| ratio(one, other)));
        let Spread { low, median, high } = ratios;
        let name = format!("{} / {}, {what}", self.name(one), self.name(other));
        let verdict = wanted.verdict(ratios);
        self.line(&name, &format!("{median:>10.2} x   ({low:.2} to {high:.2}){verdict}"));
    }

    fn laps(&self, Number(one): Number) -> impl Iterator<Item = &Lap> {
        self.laps[one].iter()
    }

    fn name(&self, Number(one): Number) -> &str {
        &self.names[one]
    }

    fn line(&self, name: &str, figure: &str) {
        line(self.section, &self.case, name, figure, self.is_smoke);
    }
}

/// The limit of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    Nothing,
}

impl Wanted {
    /// To be printed behind the figure.
    pub(crate) fn verdict(self, figure: Spread) -> String {
        let (wanted, limit, kept) = match self {
            Self::AtLeast(least) => ("at least", least, figure.median >= least),
            Self::AtMost(most) => ("at most", most, figure.median <= most),
            Self::Nothing => return String::new(),
        };
        let verdict = if kept { "kept" } else { "MISSED" };
        let doubt = if figure.reaches(limit) { ", not in all rounds" } else { "" };
        format!("   wanted: {wanted} {limit}: {verdict}{doubt}")
    }
}

/// The middle, and between what eight in ten lie.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Panics if there are no values.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        Self { low: at(0.1), median: at(0.5), high: at(0.9) }
    }

    fn reaches(self, limit: f64) -> bool {
        self.low < limit && limit < self.high
    }
}

/// Prints one figure on a line of its own. A smoke run has none.
pub(crate) fn line(section: &str, case: &str, name: &str, figure: &str, is_smoke: bool) {
    let figure = if is_smoke { "       ran" } else { figure };
    println!("{section:<8} {case:<28} {name:<50} {figure}");
}
