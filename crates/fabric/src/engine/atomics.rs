//! Atomic operations on memory that others address: what each does to the octets.
//!
//! Inputs → outputs: libfabric's datatype, operation, operands → new octets. The target computes, one
//! operation of the process after the other, so they are atomic with respect to each other (fi_atomic(3)).

use super::header::{AtomicKind, AtomicMode};
use parking_lot::Mutex;

/// Held by whoever computes: several endpoints may serve the same memory, each in a thread of its own.
pub static TURN: Mutex<()> = Mutex::new(());

/// What of a datatype's operations there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Integer,
    Float,
    Complex,
}

/// Datatypes by libfabric's number: bytes, and what can be done with them.
fn datatype(number: u8) -> Option<(usize, Class)> {
    Some(match number {
        0 | 1 => (1, Class::Integer),
        2 | 3 => (2, Class::Integer),
        4 | 5 => (4, Class::Integer),
        6 | 7 => (8, Class::Integer),
        8 => (4, Class::Float),
        9 => (8, Class::Float),
        10 => (8, Class::Complex),
        11 => (16, Class::Complex),
        _ => return None,
    })
}

/// Operations by libfabric's number.
mod op {
    pub const MIN: u8 = 0;
    pub const MAX: u8 = 1;
    pub const SUM: u8 = 2;
    pub const PROD: u8 = 3;
    pub const LOR: u8 = 4;
    pub const LAND: u8 = 5;
    pub const BOR: u8 = 6;
    pub const BAND: u8 = 7;
    pub const LXOR: u8 = 8;
    pub const BXOR: u8 = 9;
    pub const READ: u8 = 10;
    pub const WRITE: u8 = 11;
    pub const CSWAP: u8 = 12;
    pub const CSWAP_NE: u8 = 13;
    pub const CSWAP_LE: u8 = 14;
    pub const CSWAP_LT: u8 = 15;
    pub const CSWAP_GE: u8 = 16;
    pub const CSWAP_GT: u8 = 17;
    pub const MSWAP: u8 = 18;
}

/// New value of an ordered number: what all of them have.
macro_rules! ordered {
    ($x:expr, $y:expr, $c:expr, $op:expr, $one:expr, $zero:expr) => {{
        let (x, y, c) = ($x, $y, $c);
        let truth = |condition: bool| if condition { $one } else { $zero };
        let swap = |condition: bool| if condition { y } else { x };
        match $op {
            op::MIN => {
                if y < x {
                    y
                } else {
                    x
                }
            }
            op::MAX => {
                if y > x {
                    y
                } else {
                    x
                }
            }
            op::LOR => truth(x != $zero || y != $zero),
            op::LAND => truth(x != $zero && y != $zero),
            op::LXOR => truth((x != $zero) != (y != $zero)),
            op::WRITE => y,
            op::CSWAP => swap(c == x),
            op::CSWAP_NE => swap(c != x),
            op::CSWAP_LE => swap(c <= x),
            op::CSWAP_LT => swap(c < x),
            op::CSWAP_GE => swap(c >= x),
            op::CSWAP_GT => swap(c > x),
            _ => x,
        }
    }};
}

macro_rules! integer {
    ($x:expr, $y:expr, $c:expr, $op:expr) => {
        match $op {
            op::SUM => $x.wrapping_add($y),
            op::PROD => $x.wrapping_mul($y),
            op::BOR => $x | $y,
            op::BAND => $x & $y,
            op::BXOR => $x ^ $y,
            op::MSWAP => ($y & $c) | ($x & !$c),
            other => ordered!($x, $y, $c, other, 1, 0),
        }
    };
}

macro_rules! float {
    ($x:expr, $y:expr, $c:expr, $op:expr) => {
        match $op {
            op::SUM => $x + $y,
            op::PROD => $x * $y,
            other => ordered!($x, $y, $c, other, 1.0, 0.0),
        }
    };
}

macro_rules! complex {
    ($x:expr, $y:expr, $c:expr, $op:expr) => {{
        let (x, y, c) = ($x, $y, $c);
        let truth = |condition: bool| Complex { re: if condition { 1.0 } else { 0.0 }, im: 0.0 };
        let zero = truth(false);
        match $op {
            op::SUM => Complex { re: x.re + y.re, im: x.im + y.im },
            op::PROD => Complex { re: x.re * y.re - x.im * y.im, im: x.re * y.im + x.im * y.re },
            op::LOR => truth(x != zero || y != zero),
            op::LAND => truth(x != zero && y != zero),
            op::LXOR => truth((x != zero) != (y != zero)),
            op::WRITE => y,
            op::CSWAP => {
                if c == x {
                    y
                } else {
                    x
                }
            }
            op::CSWAP_NE => {
                if c != x {
                    y
                } else {
                    x
                }
            }
            _ => x,
        }
    }};
}

/// A complex number as C lays it out.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Complex<T> {
    re: T,
    im: T,
}

/// A value in the octets of this machine: the wire's are little-endian, as all machines served are.
trait Element: Copy + Default {
    fn load(octets: &[u8]) -> Self;
    fn store(self, octets: &mut [u8]);
}

macro_rules! element {
    ($($type:ty)*) => {$(
        impl Element for $type {
            fn load(octets: &[u8]) -> Self {
                octets.try_into().map(Self::from_le_bytes).unwrap_or_default()
            }
            fn store(self, octets: &mut [u8]) {
                octets.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

element!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);

impl<T: Element> Element for Complex<T> {
    fn load(octets: &[u8]) -> Self {
        let (re, im) = octets.split_at(octets.len() / 2);
        Self { re: T::load(re), im: T::load(im) }
    }

    fn store(self, octets: &mut [u8]) {
        let (re, im) = octets.split_at_mut(octets.len() / 2);
        self.re.store(re);
        self.im.store(im);
    }
}

/// The elements of an operation.
struct Elements<'a> {
    op: u8,
    target: &'a mut [u8],
    operands: &'a [u8],
    comparands: &'a [u8],
}

impl Elements<'_> {
    fn each<T: Element>(self, change: impl Fn(T, T, T, u8) -> T) {
        let bytes = size_of::<T>();
        let mut operands = self.operands.chunks_exact(bytes);
        let mut comparands = self.comparands.chunks_exact(bytes);
        for element in self.target.chunks_exact_mut(bytes) {
            let operand = operands.next().map(T::load).unwrap_or_default();
            let comparand = comparands.next().map(T::load).unwrap_or_default();
            change(T::load(element), operand, comparand, self.op).store(element);
        }
    }
}

/// Bytes of one element, if there is such an operation on such a datatype.
pub fn element_bytes(kind: AtomicKind) -> Option<usize> {
    let (bytes, class) = datatype(kind.datatype)?;
    let compares = (op::CSWAP..=op::MSWAP).contains(&kind.op);
    let known = match (kind.mode, kind.op) {
        (AtomicMode::Compare, _) => compares,
        (AtomicMode::Write, op::READ) => false,
        _ => kind.op <= op::WRITE,
    };
    let possible = match class {
        Class::Integer => true,
        Class::Float => !matches!(kind.op, op::BOR | op::BAND | op::BXOR | op::MSWAP),
        Class::Complex => matches!(
            kind.op,
            op::SUM
                | op::PROD
                | op::LOR
                | op::LAND
                | op::LXOR
                | op::READ
                | op::WRITE
                | op::CSWAP
                | op::CSWAP_NE
        ),
    };
    (known && possible).then_some(bytes)
}

/// Whether the operation takes operands at all.
pub fn has_operands(kind: AtomicKind) -> bool {
    kind.op != op::READ
}

/// Applies an operation to each element of `target`; `operands` and `comparands` are as long, except
/// those that the operation does not take. The caller has asked [`element_bytes`].
pub fn apply(kind: AtomicKind, target: &mut [u8], operands: &[u8], comparands: &[u8]) {
    let go = Elements { op: kind.op, target, operands, comparands };
    match kind.datatype {
        0 => go.each(|x: i8, y, c, op| integer!(x, y, c, op)),
        1 => go.each(|x: u8, y, c, op| integer!(x, y, c, op)),
        2 => go.each(|x: i16, y, c, op| integer!(x, y, c, op)),
        3 => go.each(|x: u16, y, c, op| integer!(x, y, c, op)),
        4 => go.each(|x: i32, y, c, op| integer!(x, y, c, op)),
        5 => go.each(|x: u32, y, c, op| integer!(x, y, c, op)),
        6 => go.each(|x: i64, y, c, op| integer!(x, y, c, op)),
        7 => go.each(|x: u64, y, c, op| integer!(x, y, c, op)),
        8 => go.each(|x: f32, y, c, op| float!(x, y, c, op)),
        9 => go.each(|x: f64, y, c, op| float!(x, y, c, op)),
        10 => go.each(|x: Complex<f32>, y, c, op| complex!(x, y, c, op)),
        11 => go.each(|x: Complex<f64>, y, c, op| complex!(x, y, c, op)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<const N: usize>(datatype: u8, op: u8, x: [u8; N], y: [u8; N], c: [u8; N]) -> [u8; N] {
        let mode = if op >= op::CSWAP { AtomicMode::Compare } else { AtomicMode::Fetch };
        let kind = AtomicKind { datatype, op, mode };
        assert_eq!(element_bytes(kind), Some(N), "datatype {datatype} operation {op}");
        let mut target = x;
        apply(kind, &mut target, &y, &c);
        target
    }

    #[test]
    fn integers() {
        let i32s = |op, x: i32, y: i32, c: i32| {
            i32::from_le_bytes(run(4, op, x.to_le_bytes(), y.to_le_bytes(), c.to_le_bytes()))
        };
        let results: Vec<i32> = (op::MIN..=op::MSWAP).map(|op| i32s(op, -6, 3, -6)).collect();
        let (x, y) = (-6, 3);
        let mask_swap = (y & -6) | (x & !-6);
        assert_eq!(results, [x, y, -3, -18, 1, 1, x | y, x & y, 0, x ^ y, x, y, y, x, y, x, y, x, mask_swap]);
        assert_eq!(i32s(op::SUM, i32::MAX, 1, 0), i32::MIN, "wraps");
        assert_eq!(run(1, op::MAX, [200], [100], [0]), [200], "unsigned");
        assert_eq!(run(0, op::MAX, [200], [100], [0]), [100], "signed");
    }

    #[test]
    fn floats_and_complex_numbers() {
        let f64s =
            |op, x: f64, y: f64| f64::from_le_bytes(run(9, op, x.to_le_bytes(), y.to_le_bytes(), [0; 8]));
        assert_eq!(
            (f64s(op::SUM, 1.5, 2.0), f64s(op::MIN, 1.5, -2.0), f64s(op::LAND, 1.5, 0.0)),
            (3.5, -2.0, 0.0)
        );
        let complex = |re: f32, im: f32| {
            let mut octets = [0; 8];
            Complex { re, im }.store(&mut octets);
            octets
        };
        assert_eq!(run(10, op::PROD, complex(1.0, 2.0), complex(3.0, 4.0), [0; 8]), complex(-5.0, 10.0));
        assert_eq!(
            run(10, op::CSWAP, complex(1.0, 2.0), complex(3.0, 4.0), complex(1.0, 2.0)),
            complex(3.0, 4.0)
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let kind = |datatype, op, mode| AtomicKind { datatype, op, mode };
        assert_eq!(element_bytes(kind(12, op::SUM, AtomicMode::Write)), None, "long double");
        assert_eq!(element_bytes(kind(9, op::BXOR, AtomicMode::Write)), None);
        assert_eq!(element_bytes(kind(11, op::MIN, AtomicMode::Fetch)), None);
        assert_eq!(element_bytes(kind(4, op::CSWAP, AtomicMode::Write)), None);
        assert_eq!(element_bytes(kind(4, op::SUM, AtomicMode::Compare)), None);
        assert_eq!(element_bytes(kind(4, op::READ, AtomicMode::Write)), None);
        assert_eq!(element_bytes(kind(4, 19, AtomicMode::Fetch)), None);
    }

    #[test]
    fn each_element_gets_its_own_operand() {
        let kind = AtomicKind { datatype: 3, op: op::SUM, mode: AtomicMode::Write };
        let mut target = [1, 0, 2, 0];
        apply(kind, &mut target, &[10, 0, 20, 0], &[]);
        assert_eq!(target, [11, 0, 22, 0]);
    }
}
